"""What `run` and `resume` were given: a spec.toml or an environment, and options over it, as the flow's parameters."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from environments import FILE, toml_file
from environments.plugins import Refused
from flows.cli import consent
from flows.cli.set_option import SetOptions, parse_settings
from flows.spec.form import spread
from flows.spec.options import AdvancedOptions

STDIN = "/dev/stdin"
"""The spec.toml of a detached campaign: its parent writes it."""
TABLES = tuple(SetOptions.__annotations__)
"""Options that are tables, which are laid over key by key."""


def stated(environment: str | None, *, settings: list[str], trust: bool = False, **given: Any) -> dict[str, Any]:
    """The parameters of the flow that the command line gives; those left out are absent."""
    set_ = parse_settings(settings)
    base: dict[str, Any] = {}
    if environment and environment.endswith((".toml", STDIN)):
        base = _read_spec(Path(environment))
        consent.ask_about_spec(base, Path(environment), trust)
    elif environment is not None:
        base = {"environment": _lasting(environment)}
    flat = {key: value for key, value in {**given, **set_.stated}.items() if value is not None}
    advanced = {key: flat.pop(key) for key in AdvancedOptions.__annotations__ if key in flat}
    return laid_over(base, {**flat, "advanced": advanced})


def _read_spec(path: Path) -> dict[str, Any]:
    """Read a spec.toml; an environment that is a path is relative to the file."""
    spec = toml_file.read(path)
    if path.name == FILE:
        raise Refused(f"{path} is an environment, not a spec: name its folder, {path.absolute().parent}")
    if "environment" not in spec:
        raise Refused(f"{path}: environment: is required")
    spec["environment"] = _lasting(str(spec["environment"]), path.parent)
    spec = spread(spec)  # before anybody looks for what it asks for, or lays an option over it
    for key in ("advanced", *(f"advanced.{table}" for table in TABLES)):
        table = functools.reduce(lambda above, name: above.get(name, {}), key.split("."), spec)
        if not isinstance(table, dict):
            raise Refused(f"{path}: {key}: must be a table of keys, got {table!r}")
    return spec


def _lasting(reference: str, base: Path = Path()) -> str:
    """An environment's name, or its absolute path."""
    if "/" not in reference and not reference.startswith("."):
        return reference
    return str((base / Path(reference).expanduser()).resolve())


def laid_over(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge parameters: `advanced` key by key, and the tables in it as well."""
    below, above = base.get("advanced", {}), over.get("advanced", {})
    advanced = {**below, **above}
    for table in TABLES & advanced.keys():
        advanced[table] = {**below.get(table, {}), **above.get(table, {})}
    return {**base, **over, "advanced": advanced}
