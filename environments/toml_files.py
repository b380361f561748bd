"""TOML files that people write, and errors that show the line that is wrong."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from environments.plugins import Refused

PLACE = re.compile(r"\(at line (\d+), column \d+\)|\(at (end) of document\)")
LONGEST = 120
"""Characters of a line that are shown."""
BARE = re.compile(r"\s*([\w.\"-]+)\s*=\s*([^\s\"'\[{#][^\"'#]*?)\s*(#.*)?")
"""A key and a value without quotes."""


def read_toml(path: Path) -> dict[str, Any]:
    """The file's table. Raises Refused with the line that is wrong and how it may have been meant; and OSError."""
    text = path.read_bytes()
    try:
        return tomllib.loads(text.decode())
    except UnicodeDecodeError as broken:
        raise Refused(f"{path}: not TOML: it is not UTF-8 ({broken.reason} at byte {broken.start})") from broken
    except tomllib.TOMLDecodeError as broken:
        raise Refused(f"{path}: not TOML: {broken}{_shown(text.decode(), str(broken))}") from broken


def _shown(text: str, error: str) -> str:
    """The line that an error names, and a remedy if it lacks quotes; empty when it names none."""
    lines = text.splitlines()
    place = PLACE.search(error)
    if place is None or not lines:
        return ""
    line = lines[min(int(place[1]), len(lines)) - 1] if place[1] else lines[-1]
    shown = f": {line.strip()[:LONGEST]}"
    if len(line) > LONGEST or (bare := BARE.fullmatch(line)) is None:
        return shown
    if bare[2] in ("True", "False"):
        return f"{shown}: TOML writes {bare[1]} = {bare[2].lower()}"
    return f'{shown}: a text stands in quotes: {bare[1]} = "{bare[2]}"'
