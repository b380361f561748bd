"""Plug-ins: each is a file in a package, and its file name is the name that users write.

Names are listed without importing the files, so a missing optional dependency affects only its users.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
KINDS = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "mapping_type"), "must be a table of keys"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list, in brackets"),
}
"""Pydantic's faults of a value of another kind; in its own words they name Python's types and our classes."""
LONGEST_SHOWN = 200
"""Characters of a value in a refusal."""


class Refused(Exception):
    """A request that cannot be run. The message states fact, value and remedy; nothing was started."""


def names(package: str) -> tuple[str, ...]:
    """The plug-ins of a package: its public modules, by file name."""
    return tuple(sorted(path.stem for path in folder(package).glob("*.py") if not path.stem.startswith("_")))


def folder(package: str) -> Path:
    origin = importlib.import_module(package).__file__
    assert origin is not None, f"{package} has no __init__.py"
    return Path(origin).parent


def load(package: str, name: str, base: type[T], where: str = "") -> type[T]:
    """The public subclass of `base` that the plug-in's file defines.

    Raises:
        Refused: there is no such plug-in, a package that it needs is not installed, or it defines no or several.
    """
    require(name, names(package), base.__name__.lower(), where)
    try:
        module = importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as missing:
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
    cls = load(package, name, base)
    try:
        return cls(**options)
    except ValidationError as error:
        raise explain(error, f"{base.__name__.lower()} {name}", cls) from error


def require(name: str, known: Iterable[str], what: str, where: str = "") -> None:
    """Refuse an unknown name, with the nearest and all known ones; `where` (file and key) comes first."""
    known = tuple(known)
    if name not in known:
        place, available = f"{where}: " if where else "", ", ".join(known) or "none"
        raise Refused(f"{place}unknown {what} {name!r}.{_near(name, known)} Available: {available}.")


def _near(name: str, known: tuple[str, ...]) -> str:
    return "".join(f" Did you mean {near!r}?" for near in difflib.get_close_matches(name, known, n=1))


def explain(
    error: ValidationError, source: str, model: type[BaseModel] | None = None, known: Iterable[str] | None = None
) -> Refused:
    """A pydantic error as one line per fault: its place, what is wrong, the value.

    Args:
        model: Whose keys are known; None: nothing is said of them.
        known: Its keys that a person may write; None: all of its fields.
    """
    lines, top = [], tuple(model.model_fields if known is None and model else known or ())
    for fault in error.errors():
        path = [str(part) for part in fault["loc"] if part not in ("float", "int", "choice")]
        if fault["type"].startswith("union_tag"):
            path.append(str(fault["ctx"]["discriminator"]).strip("'"))
        if fault["type"] == "extra_forbidden":
            *above, key = fault["loc"]
            words = _below(fault, model) or _unknown(str(key), _keys(model, above) if above else top)
        else:
            words = _in_words(fault)
        lines.append(": ".join(filter(None, [source, ".".join(path), words])))
    return Refused("\n".join(lines))


def _below(fault: ErrorDetails, model: type[BaseModel] | None) -> str:
    """That a key stands beside the table that it belongs in; empty if it does not."""
    if len(fault["loc"]) > 1 or isinstance(fault["input"], dict):
        return ""
    tables = (table for table in (model.model_fields if model else ()) if fault["loc"][0] in _keys(model, [table]))
    return "".join(f"unknown key here: it belongs in [{table}]." for table in [*tables][:1])


def _unknown(key: str, known: tuple[str, ...]) -> str:
    return "unknown key." + (_near(key, known) or (f" Known: {', '.join(known)}." if known else ""))


def _keys(kind: Any, path: Sequence[int | str]) -> tuple[str, ...]:
    """The keys of the table at a path, as pydantic states it, below a model or a type; none if that is no table."""
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        if not path:
            return tuple(kind.model_fields)
        field = kind.model_fields.get(str(path[0]))
        return _keys(field.annotation, path[1:]) if field else ()
    if get_origin(kind) is dict:
        return _keys(get_args(kind)[1], path[1:]) if path else ()
    members = get_args(kind)
    tagged = [member for member in members if path and _tag(member) == path[0]]
    found = (_keys(member, path[1:] if tagged else path) for member in tagged or members)
    return next(filter(None, found), ())


def _tag(member: Any) -> object:
    """How a path names a member of a union: by the default of its field `type`."""
    field = getattr(member, "model_fields", {}).get("type")
    return field.default if field else None


def _in_words(fault: ErrorDetails) -> str:
    kind, given = fault["type"], fault["input"]
    if kind in ("missing", "union_tag_not_found"):
        return "is required"
    if kind == "union_tag_invalid":
        return f"must be one of {fault['ctx']['expected_tags']}, got {fault['ctx']['tag']!r}"
    wrong = KINDS.get(kind, fault["msg"].removeprefix("Value error, "))
    if given is None:
        return f"{wrong}, and it is empty: fill it in, or leave it out"
    if isinstance(given, dict):  # a table that is wrong as a whole says so itself
        return f"{wrong}, got a table" if kind.endswith("_type") else wrong
    return wrong if isinstance(given, BaseException) else f"{wrong}, got {_short(given)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."
