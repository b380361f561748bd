"""The environment of a prime-rl configuration: a bundled one with the configuration laid over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit

import environments
from environments import FILE, toml_file
from environments.space import Value
from tasks.importing import Term
from tasks.importing.reading.prime_rl_keys import PrimeRlConfig, keys

COPIED = ("prepare.py", "taskset.py")


def files_of(found: PrimeRlConfig, space: Mapping[str, Any] | None, title: str) -> dict[str, str | Path]:
    """The environment's files: those of the bundled one with the configuration laid over.

    Args:
        space: The whole [space], where it is not the bundled one's; the keys in it are tuned by trials.
    """
    folder = environments.find(found.base)
    document = tomlkit.parse((folder / FILE).read_text("utf-8"))
    table = toml_file.read(folder / FILE)
    variant = table.get(environments.VARIANTS, {}).get(found.base, {})
    document.pop(environments.VARIANTS, None)
    for key, value in {**variant, **found.settings, "title": title}.items():
        _put(document, key.split("."), value)
    if "prepare.settings.model" in found.settings and found.settings["prepare.settings.model"] != _model(table):
        _put(document, ["prepare", "settings", "model_revision"], "main")
        found.left.append(Term("revision of the model", "main, which may change: pin prepare.settings.model_revision"))
    tuned = _tuned(document, found, space)
    written = keys().tuned((folder / "train.toml").read_text("utf-8"), tuned)
    return {FILE: tomlkit.dumps(document), "train.toml": written, **{name: folder / name for name in COPIED}}


def _model(table: Mapping[str, Any]) -> object:
    return table["prepare"]["settings"]["model"]


def _tuned(document: Any, found: PrimeRlConfig, space: Mapping[str, Any] | None) -> dict[str, Value]:
    """Put values into [space] and [fixed]; the keys that remain for train.toml."""
    called = {dotted: name for name, dotted in keys().DOTTED.items()}
    if space is not None:
        document["space"] = {name: dict(one) for name, one in space.items()}
        fixed = {called[key]: value for key, value in found.tuned.items() if key in called and called[key] not in space}
        document["fixed"].update(fixed)
        return {key: value for key, value in found.tuned.items() if called.get(key, key) not in {*space, *fixed}}
    rest: dict[str, Value] = {}
    for key, value in found.tuned.items():
        parameter = document["space"].get(called.get(key, key))
        if parameter is None:
            rest[key] = value
        elif parameter.get("log") and isinstance(value, int | float) and value <= 0:
            why = (
                f"the baseline's {parameter['default']}: {called[key]} is searched on a log scale, which has no {value}"
            )
            found.left.append(Term(f"{key} = {value!r}", why))
        else:
            _widen(parameter, value)
    return rest


def _widen(parameter: Any, value: Value) -> None:
    """Make a value the default of a parameter, and part of its range."""
    if parameter["type"] == "choice":
        if value not in parameter["values"]:
            parameter["values"] = sorted([*parameter["values"].unwrap(), value], key=lambda one: (str(type(one)), one))
    elif isinstance(value, int | float):
        lowest = value / 10 if parameter.get("log") else value
        parameter["low"] = min(parameter["low"], lowest) if value < parameter["low"] else parameter["low"]
        parameter["high"] = max(parameter["high"], value)
    parameter["default"] = value


def _put(table: Any, path: list[str], value: Value) -> None:
    *above, last = path
    for part in above:
        table = table.setdefault(part, {})
    table[last] = value
