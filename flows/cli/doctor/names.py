"""The check of the names `flows`, `tasks`, `environments` and `blocks`: who else uses them.

Python imports the first module of a name on its path, but prefers a package with an `__init__.py` anywhere to a folder
without one. So another project's module can take the place of ours, which `flows/__init__.py` refuses, and ours can
take the place of another project's, about which only this check says anything.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path

from flows.cli.doctor.machine import Check
from tasks.system.home import CODE, PACKAGES, is_checkout

OURS, APP = "nightshift-rl", "flows/cli/app.py"
OWN = "give Nightshift a virtual environment of its own"


def names() -> Check:
    """Whether anybody else has a module with one of our names."""
    here = "a checkout" if is_checkout() else "installed"
    details: dict[str, object] = {"path": str(CODE)}
    if shared := sharing(importlib.metadata.distributions()):
        listed = "; ".join(f"{name} has {_quoted(packages)}" for name, packages in shared.items())
        fact = f"other distributions have files in our packages, or hide them: {listed}"
        return Check("names", "bad", fact, OWN, details | {"distributions": shared})
    folders = {path.resolve() for path in (Path.cwd(), *map(Path, filter(None, sys.path)))} - {CODE.resolve()}
    others = sorted(folder for folder in folders if (folder / APP).is_file())
    first, hidden = _neighbours(sorted(folders - {*others}))
    details |= {"others": [*map(str, others)], "first": [*map(str, first)], "hidden": [*map(str, hidden)]}
    facts = []
    if others:
        facts.append(f"this Nightshift is at {CODE}, another at {_listed(others)}")
    if first:
        facts.append(f"a program that finds {_listed(first)} first cannot use Nightshift, and says so")
    if hidden:
        facts.append(f"{_listed(hidden)} cannot be imported beside Nightshift: it has no __init__.py")
    if facts:
        return Check("names", "note", "; ".join(facts), f"keep that folder off PYTHONPATH, or {OWN}", details)
    return Check("names", "ok", f"flows, tasks, environments and blocks are those of {CODE} ({here})", details=details)


def sharing(distributions: Iterable[importlib.metadata.Distribution]) -> dict[str, list[str]]:
    """Other distributions that have a module with one of our names, and with which."""
    found = {}
    for distribution in distributions:
        record = f"\n{distribution.read_text('RECORD') or ''}"  # as text: to parse all of them takes a second
        taken = [name for name in PACKAGES if f"\n{name}/" in record or f"\n{name}.py," in record]
        if taken and distribution.name != OURS:
            found[distribution.name] = taken
    return found


def _neighbours(folders: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Modules of our names in folders that are not ours: those that can take the place of ours, and those that cannot,
    as ours have an `__init__.py`."""
    first, hidden = [], []
    for folder, name in itertools.product(folders, PACKAGES):
        package = folder / name
        first += [path for path in (package / "__init__.py", folder / f"{name}.py") if path.is_file()]
        if not (package / "__init__.py").exists() and any(package.glob("*.py")):
            hidden.append(package)
    return first, hidden


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _listed(paths: list[Path]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(map(str, paths[:3])) + more
