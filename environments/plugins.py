"""Plug-ins: each is a file in a package, and its file name is the name that users write."""

import difflib
import importlib
import inspect
import reprlib
import tomllib
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Refused(Exception):
    """A request that cannot be run. The message states fact, value and remedy; nothing was started."""


def names(package: str) -> tuple[str, ...]:
    """The plug-ins of a package: its public modules, by file name; none is imported."""
    return tuple(sorted(path.stem for path in folder(package).glob("*.py") if not path.stem.startswith("_")))


def name_of(plugin: object) -> str:
    """The name of a plug-in, which is that of its file."""
    return type(plugin).__module__.rpartition(".")[2]


def folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec and spec.origin, f"{package} has no __init__.py"
    return Path(spec.origin).parent


def load(package: str, name: str, base: type[T], where: str = "") -> type[T]:
    """The public subclass of `base` that the plug-in's file defines.

    Raises Refused: there is no such plug-in, a package that it needs is not installed, or it defines no or several.
    """
    require(name, names(package), base.__name__.lower(), where)
    try:
        module = importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith(package):  # a mistake in its code
            raise
        needs = f"needs the package {missing.name!r}: install it"
        raise Refused(f"{base.__name__.lower()} {name!r} {needs}") from missing
    classes = inspect.getmembers(module, lambda thing: inspect.isclass(thing) and issubclass(thing, base))
    own = [cls for label, cls in classes if cls.__module__ == module.__name__ and not label.startswith("_")]
    if len(own) != 1:
        raise Refused(f"{module.__file__} must define one public subclass of {base.__name__}, it has {len(own)}")
    plugin: type[T] = own[0]
    return plugin


def make(package: str, name: str, base: type[M], options: Mapping[str, Any]) -> M:
    """A plug-in by name, with options for its fields. Refused when there is none, or an option is invalid."""
    return validated(load(package, name, base), options, f"{base.__name__.lower()} {name}")


def validated(cls: type[M], values: object, source: str, known: Iterable[str] = ()) -> M:
    """A model of these values. Refused, with a line for each fault after `source`, where some are invalid."""
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        raise explain(error, source, known or cls.model_fields) from error


def require(name: str, known: Iterable[str], what: str, where: str = "") -> None:
    """Refuse an unknown name, with the nearest and all known ones; `where` (file and key) comes first."""
    known = tuple(known)
    if name not in known:
        place, available = f"{where}: " if where else "", ", ".join(known) or "none"
        raise Refused(f"{place}unknown {what} {name!r}.{_near(name, known)} Available: {available}.")


def _near(name: str, known: tuple[str, ...]) -> str:
    return "".join(f" Did you mean {near!r}?" for near in difflib.get_close_matches(name, known, n=1))


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises Refused: it cannot be read, or is not TOML."""
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as wrong:
        raise Refused(f"{path}: {wrong.strerror}") from wrong
    except (ValueError, RecursionError) as wrong:
        raise Refused(f"{path}: not TOML: {wrong}") from wrong


def explain(error: ValidationError, source: str, known: Iterable[str] = ()) -> Refused:
    """A pydantic error as a line for each of its first faults: `source` (what was read), key, and pydantic's message.

    Args:
        known: The keys that there are at the top, one of which an unknown one may mean.
    """
    return Refused("\n".join(f"{source}: {_in_words(fault, tuple(known))}" for fault in error.errors()[:10]))


def _in_words(fault: ErrorDetails, known: tuple[str, ...]) -> str:
    tags = ("float", "int", "choice", "bool", "str")  # kinds of parameters, which pydantic has among the keys
    key = ".".join(str(part) for part in fault["loc"] if part not in tags)
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message = f"unknown key.{_near(key, known)}"
    elif not isinstance(fault["input"], dict | BaseException):  # a table may be the whole file
        message = f"{message}, got {reprlib.repr(fault['input'])}"
    return f"{key}: {message}" if key else message
