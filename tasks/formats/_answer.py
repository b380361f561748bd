"""Shared parts of the formats: fences, names of files, omitted lines, and the reason why an answer holds no edit."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.system.redact import capped, clean, quote

FENCE = re.compile(r"^(`{3,}|~{3,})([^`]*)$")
"""At the beginning of its line: with a blank before it, it is a line of a diff."""
FILE = re.compile(r"(?<![\w/])(?:[\w-]|\.{0,2}/)[\w./-]*\.(?:py|pyi|md|txt|toml|json|ya?ml|cfg|ini|sh|c|cpp|h|rs)\b")
"""A file name in a sentence."""
PATH = re.compile(r"[\w./~-]*/[\w./~-]*")
DECORATION = " \t\r#*`\"'<>()[]:|"
LABEL = re.compile(r"^(?:file(?: ?name)?|path|new file|title)\s*[:=]\s*", re.IGNORECASE)
LINE_CHARACTERS = 300
"""Characters of a line in which a name, or words that stand for omitted lines, are looked for."""
DOTS = r"(?:\.\.\.|\u2026)"
COMMENT = r"^\s*(?:#|//|/\*|<!--)\W*"
PARTS = r"(?:code|file|functions?|class(?:es)?|methods?|implementation|script|logic|body|program|imports?)"
LEFT_OUT = re.compile(
    rf"^\s*{DOTS}\s*(?:\(?\w|$)"
    rf"|{COMMENT}{DOTS}"
    rf"|{COMMENT}(?:keep |all |the )*(?:rest of|remaining|existing|unchanged|previous|same) (?:the |your )?{PARTS}\b"
    rf"|{COMMENT}(?:the )?(?:rest|everything else) (?:is |stays |remains )?(?:unchanged|the same|as before)\b",
    re.IGNORECASE,
)
"""A line that stands for omitted ones."""
HEADER = re.compile(r"^\s*(?:async def|def|class)\b.*:\s*(?:#.*)?$")
NEAREST_LINES, NEAREST_CHARACTERS = 12, 160
"""Of a file, in a reason; characters of each line."""


class NoEdit(Exception):
    """An answer holds no edit that can be applied. The reason has enough for a model to repair the answer.

    Its first line is a sentence; lines of a file may follow, quoted.
    """


@dataclass(frozen=True)
class Fence:
    """A fenced block of an answer."""

    line: int
    """Of its opening, from 1."""
    info: str
    """The text after the opening fence."""
    above: str
    """The last line before it that is not blank, outside of any other fence."""
    body: tuple[str, ...]


def fences(answer: str) -> list[Fence]:
    """The fenced blocks of an answer.

    Raises:
        NoEdit: the last one is not closed.
    """
    blocks: list[Fence] = []
    above, opened, body = "", None, list[str]()
    for number, line in enumerate(answer.split("\n"), 1):
        match = FENCE.match(line.rstrip())
        if opened is None and match:
            opened, body = (number, match[1], match[2].strip()), []
        elif opened is None:
            above = line if line.strip() else above
        elif match and not match[2].strip() and match[1].startswith(opened[1]):
            blocks.append(Fence(opened[0], opened[2], above, tuple(body)))
            above, opened = "", None
        else:
            body.append(line)
    if opened is not None:
        raise NoEdit(
            f"the fence opened in line {opened[0]} of the answer is never closed: the answer is cut off. "
            "Write all of it, and a fence longer than any inside"
        )
    return blocks


def named(line: str, editable: Sequence[str]) -> str | None:
    """The editable file that a line names, alone or as the only one in a sentence; None when it names none.

    Raises:
        NoEdit: the line is the name of another file, or names several.
    """
    # Without Markdown around it: train.py of `### **train.py**:`.
    bare = LABEL.sub("", line[:LINE_CHARACTERS].strip(DECORATION)).strip(DECORATION).removeprefix("./")
    if bare in editable:
        return bare
    if FILE.fullmatch(bare) or PATH.fullmatch(bare):
        raise NoEdit(f"{capped(bare, 100)!r} may not be changed; editable: {', '.join(editable)}")
    word = r"(?<![\w./-]){}(?![\w/-]|\.\w)"
    inside = {name for name in editable if re.search(word.format(re.escape(name)), line[:LINE_CHARACTERS])}
    if len(inside) > 1:
        raise NoEdit(f"{capped(line.strip(), 100)!r} names several files: put one name alone on the line before")
    return inside.pop() if inside else None


def check_complete(lines: Sequence[str], known: Iterable[str], where: str) -> None:
    """Refuse new lines of which one stands for omitted ones and was not in the file (`known`) before.

    Raises:
        NoEdit: one does.
    """
    before = {line.strip() for line in known}
    above = ""
    for line in lines:
        is_stub = line.strip() == "..." and HEADER.match(above) and above.strip() not in before
        if LEFT_OUT.match(line[:LINE_CHARACTERS]) and not is_stub and line.strip() not in before:
            raise NoEdit(
                f"{where}: {capped(line.strip(), 100)!r} stands for lines that are left out; "
                "nothing is filled in: write every line"
            )
        above = line if line.strip() else above


def nearest(text: str, wanted: Sequence[str]) -> str:
    """For a reason: the lines of a file that are most like lines that it does not have."""
    lines, span = text.split("\n"), len(wanted)
    bare = [line.strip() for line in lines]
    words = Counter(line.strip() for line in wanted if line.strip())
    counts = [(Counter(bare[at : at + span]) & words).total() for at in range(max(len(lines) - span, 0) + 1)]
    at = max(range(len(counts)), key=lambda at: (counts[at], bare[at] == wanted[0].strip()))
    if not counts[at]:
        alike = difflib.get_close_matches(max(words, key=len, default=""), bare, n=1)
        if not alike:
            return ", and no line of it is like them"
        at = bare.index(alike[0])
    missing = next((line for line in wanted if line.strip() and line not in lines), "")
    which = f"it has no line {capped(missing, 100)!r}" if missing else "its lines are there, but not in a row"
    chosen = enumerate(lines[at : at + min(max(span, 3), NEAREST_LINES)], at + 1)
    shown = "\n".join(f"{number:>4} {' '.join(clean(line))}" for number, line in chosen)
    return f"; {which}. The lines most like it are:\n{quote(shown, NEAREST_CHARACTERS, NEAREST_LINES)}"
