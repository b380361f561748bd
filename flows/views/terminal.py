"""Printing on a terminal: a line per fact, cut at the edge of a screen and whole in a file or a pipe.

Texts of programs, proposers and settings pass through `clean` and can do nothing: control characters are escaped, and
what is huge is cut.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.text import Text

from tasks.system.redact import capped

WHOLE = 100_000
"""Columns of a file: nothing is cut there."""
LONGEST = 2000
"""Characters that are shown of a text of somebody else."""


def console(quiet: bool = False) -> Console:
    """Standard output, in whatever encoding it has."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    is_file = not sys.stdout.isatty()  # even if colour is forced: a file gets plain lines
    made = Console(highlight=False, emoji=False, quiet=quiet, force_terminal=False if is_file else None)
    if not is_screen(made):
        made.size = ConsoleDimensions(WHOLE, made.height)  # both, or a dumb terminal has 80 columns
    return made


def is_screen(console: Console) -> bool:
    """Whether lines end at an edge: on a terminal, not in a file or a pipe."""
    return console.is_terminal and not console.is_dumb_terminal


def put(console: Console, line: RenderableType) -> None:
    """Print a line, cut at the edge of a screen, or a table."""
    # A text that is printed loses what it says of its own width.
    console.print(line, no_wrap=isinstance(line, Text) or None, overflow="ellipsis", highlight=False)


def print_json(document: object) -> None:
    """Print one JSON document on stdout, and nothing else."""
    print(json.dumps(document, indent=2, allow_nan=False))


def tell(document: object, words: str, as_json: bool) -> None:
    """Print a document, or what it says in words."""
    if as_json:
        print_json(document)
    else:
        print(words)


def clean(text: str) -> str:
    """A text as one line without control characters: what is not printable is escaped, as in \\x1b."""
    line = " ".join(text.split())
    if not line.isprintable():
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return capped(line, LONGEST)


def code(value: object) -> str:
    """Any value as code in Markdown; a bar would end a table cell, and a backtick the code, so both are replaced."""
    line = " ".join(str(value).split()).replace("`", "'").replace("|", "/")
    return f"`{line}`"


def cleaned(value: Any) -> Any:
    """A JSON value with every text in it cleaned, names too."""
    if isinstance(value, Mapping):
        return {cleaned(name): cleaned(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(one) for one in value]
    return clean(value) if isinstance(value, str) else value


def short(path: Path) -> str:
    """A path as a person would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def binaries() -> str:
    """The prefix with which a shell finds our commands: nothing, or the path of an environment that is not active."""
    directory = Path(sys.executable).parent
    if shutil.which("nightshift") == str(directory / "nightshift"):
        return ""
    return f"{short(directory)}/"
