"""Reading TOML that a person wrote: a mistake is refused with its line, and with what to write in its place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from environments.plugins import Refused

MOST_SHOWN = 100
"""Characters of a faulty line that are quoted."""
KEY = r"[\w.\-\"']+"
VALUE = re.compile(rf"(?:^\s*|[{{,]\s*)({KEY})\s*=\s*([^\s\"'\[{{#,}}][^,#}}]*?)\s*(?:[,}}#]|$)")
"""A key with a value that begins with no quote or bracket."""
PROPER = re.compile(r"true|false|[+-]?(inf|nan|\d.*)")

LINES = (
    (rf"^({KEY})\s*=\s*(#.*)?$", "write a value after =, a text in quotes"),
    (rf"^({KEY})\s*=\s*\[\s*([A-Za-z_][^\"',\]]*)", r'texts stand in quotes: \1 = ["\2"]'),
    (rf"^({KEY})\s*:\s*(.+)$", r"write = in place of the colon: \1 = \2"),
    (r"^(\[[^\]]*)$", r"close the bracket: \1]"),
    (rf"^({KEY})\s+([^=\s].*)$", r"write = between a key and its value: \1 = \2"),
    (rf"^({KEY})$", r"write a key and its value: \1 = ..."),
)
"""Forms of a faulty line, each with its remedy."""
FAULTS = {
    "escape": "a backslash in \"...\" begins an escape: write '...' in single quotes, or two backslashes",
    "hex value": "a backslash in \"...\" begins an escape: write '...' in single quotes, or two backslashes",
    "Illegal character '\\n'": "close the quotes: a text ends on its line with the quote that it begins with",
    "overwrite": "this key stands in the file twice: keep one",
    "declare": "this table stands in the file twice: keep one",
    "Unclosed array": "close the list: ]",
}
"""Parts of the parser's messages, each with its remedy."""


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        Refused: it cannot be read, or is not TOML.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as wrong:
        raise Refused(f"{path}: {wrong.strerror}") from wrong
    except UnicodeDecodeError as wrong:
        raise Refused(f"{path}: not TOML: it is not written in UTF-8 ({wrong.reason} at byte {wrong.start})") from wrong
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise Refused(f"{path}: not TOML: {_explained(text, str(wrong))}") from wrong
    except RecursionError as wrong:
        raise Refused(f"{path}: not TOML: its values are nested too deep") from wrong


def _explained(text: str, fault: str) -> str:
    """What is wrong, the line, and what to write."""
    lines = text.rstrip("\n").split("\n")
    found = re.search(r"\(at line (\d+), column \d+\)", fault)
    at = min(int(found[1]), len(lines)) if found else len(lines)
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in lines[at - 1].strip())
    line = line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]} ..."
    return "\n  ".join(filter(None, (fault, f"line {at}: {line}", _remedy(line, fault))))


def _remedy(line: str, fault: str) -> str:
    """What to write in place of a faulty line; empty where nothing fits."""
    for key, value in VALUE.findall(line):
        if value in ("True", "False"):
            return f"booleans are written in small letters: {key} = {value.lower()}"
        if value in ("None", "null", "nil"):
            return f"there is no {value} in TOML: leave out {key}"
        if not PROPER.fullmatch(value):
            return f'a text stands in quotes: {key} = "{value}"'
    by_fault = (remedy for sign, remedy in FAULTS.items() if sign in fault)
    return next(
        (match.expand(remedy) for form, remedy in LINES if (match := re.search(form, line))), next(by_fault, "")
    )
