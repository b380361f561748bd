"""The folder that a sweep starts its program in: found from the sweep's file, and copied as far as it is small."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from environments import NOT_FROZEN
from environments.plugins import Refused
from tasks.importing import Term

UP = 3
"""Folders above a sweep's file, its own included, that the files it names are looked for in."""
MOST_BYTES = 64 * 2**20
"""Of the folder, which is copied whole; of a larger one modules alone."""
PASSED_OVER = frozenset({*NOT_FROZEN, "wandb", "node_modules", "venv"})
ENGINES = {
    "config.json": "not copied: the engine writes a file of that name, with the parameters of a trial",
    "program.md": "not copied: program.md here describes the problem",
}


def folder_of(sweep: Path, name: str) -> Path:
    """The folder that has `name`, a path as the sweep states it. Refused if there is none."""
    above = [sweep.resolve().parent, *sweep.resolve().parents[1:UP]]
    found = next((folder for folder in above if (folder / name).is_file()), None)
    if found is None:
        raise Refused(f"{sweep}: there is no {name} in {above[0]} or {UP - 1} folders above it: put it there")
    return found


def entries(root: Path, name: str, written: Sequence[str]) -> tuple[list[str], list[Term]]:
    """The names in a program's folder that are copied, and why others are not.

    Args:
        name: The program.
        written: Names that the importer itself writes.

    Raises:
        Refused: one of them is there already, or the modules alone are too large.
    """
    here = [one.name for one in sorted(root.iterdir()) if not one.name.startswith(".") and one.name not in PASSED_OVER]
    if taken := sorted({*here} & {*written}):
        raise Refused(f"{root / taken[0]}: a file of that name is written here: rename it in a copy")
    left = [Term(one, ENGINES[one]) for one in here if one in ENGINES]
    here = [one for one in here if one not in ENGINES]
    if sum(map(_size, (root / one for one in here))) <= MOST_BYTES:
        return here, left
    own = [one for one in here if one == Path(name).parts[0] or one.endswith(".py") or _has_modules(root / one)]
    if sum(map(_size, (root / one for one in own))) > MOST_BYTES:
        most = MOST_BYTES // 2**20
        raise Refused(f"{root} holds more than {most} MiB of modules and what lies beside them: move data out")
    others = ", ".join(one for one in here if one not in own)
    return own, [*left, Term(others, "not copied, for its size: list it under readable by its absolute path")]


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(one.stat().st_size for one in files if one.is_file())


def _has_modules(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.py"))
