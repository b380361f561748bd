"""Plug-ins: a file (or folder) in a package is the registry; its name is the name used everywhere.

Names are listed without importing, so an optional dependency that is missing hurts only its user.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

T = TypeVar("T")


class Refused(Exception):
    """What was asked for cannot be run. The message states fact, value and remedy; nothing was started."""


def names(package: str) -> tuple[str, ...]:
    """The plug-ins of a package: its public modules, by file name."""
    return tuple(sorted(path.stem for path in folder(package).glob("*.py") if not path.stem.startswith("_")))


def folder(package: str) -> Path:
    """Where a package's files are."""
    origin = importlib.import_module(package).__file__
    assert origin is not None, f"{package} has no __init__.py"
    return Path(origin).parent


def load(package: str, name: str, base: type[T]) -> type[T]:
    """The one public subclass of `base` that the plug-in's own file defines.

    Raises:
        Refused: no such plug-in (with the near miss), or a package that it needs is not installed.
    """
    require(name, names(package), what=base.__name__.lower())
    try:
        module = importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as missing:
        raise Refused(
            f"{base.__name__.lower()} {name!r} needs the package {missing.name!r}: install it"
        ) from missing
    found = [
        thing
        for label, thing in vars(module).items()
        if inspect.isclass(thing)
        and issubclass(thing, base)
        and thing.__module__ == module.__name__
        and not label.startswith("_")
    ]
    if len(found) != 1:
        raise Refused(
            f"{module.__file__} must define one public subclass of {base.__name__}, it has {len(found)}"
        )
    return found[0]


def require(name: str, known: Iterable[str], what: str) -> None:
    """Refuse an unknown name with the near miss and everything available."""
    known = tuple(known)
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise Refused(f"unknown {what} {name!r}.{hint} Available: {', '.join(known) or 'none'}.")


def explain(error: ValidationError, source: str, known: Iterable[str] = ()) -> Refused:
    """A pydantic error as one line per fact: where it stands, what is wrong, what was given."""
    lines = []
    for fault in error.errors():
        where = (
            ".".join(str(part) for part in fault["loc"] if part not in ("float", "int", "choice")) or "value"
        )
        if fault["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(fault["loc"][-1]), tuple(known), n=1)
            message = "unknown key." + (f" Did you mean {near[0]!r}?" if near else "")
        elif fault["type"] == "missing":
            message = "is required"
        else:
            given = (
                f", got {fault['input']!r}" if not isinstance(fault["input"], dict | BaseException) else ""
            )
            message = fault["msg"].removeprefix("Value error, ") + given
        lines.append(f"{source}: {where}: {message}")
    return Refused("\n".join(lines))
