"""The folder that a sweep starts its program in, found from the sweep's file."""

from __future__ import annotations

from pathlib import Path

from environments.plugins import Refused

UP = 3
"""Folders above a sweep's file, its own included, that the files it names are looked for in."""


def folder_of(sweep: Path, name: str) -> Path:
    """The folder that has `name`, a path as the sweep states it. Refused if there is none."""
    above = [sweep.resolve().parent, *sweep.resolve().parents[1:UP]]
    found = next((folder for folder in above if (folder / name).is_file()), None)
    if found is None:
        raise Refused(f"{sweep}: there is no {name} in {above[0]} or {UP - 1} folders above it: put it there")
    return found
