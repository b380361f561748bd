"""Shared parts of the formats: fences, names of files, omitted lines, and the reason why an answer holds no edit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.system.redact import capped

FENCE = re.compile(r"^(`{3,}|~{3,})([^`]*)$")
"""At the beginning of its line: with a blank before it, it is a line of a diff."""
FILE = re.compile(r"(?<![\w/])(?:[\w-]|\.{0,2}/)[\w./-]*\.(?:py|pyi|md|txt|toml|json|ya?ml|cfg|ini|sh|c|cpp|h|rs)\b")
"""A file name in a sentence."""
PATH = re.compile(r"[\w./~-]*/[\w./~-]*")
DECORATION = " \t\r#*`\"'<>()[]:|"
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


class NoEdit(Exception):
    """An answer holds no edit that can be applied. The reason has enough for a model to repair the answer."""


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
    """The fenced blocks of an answer; NoEdit where the last one is not closed."""
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
    """The editable file that a line names; None when it names no file, and NoEdit for another one, or several."""
    line = line[:LINE_CHARACTERS]
    bare = line.strip(DECORATION).removeprefix("./")  # without Markdown around it
    if bare in editable:
        return bare
    spoken = {name.removeprefix("./") for name in FILE.findall(line)} | ({bare} if PATH.fullmatch(bare) else set())
    word = r"(?<![\w./-]){}(?![\w/-]|\.\w)"
    own = {name for name in editable if name in spoken or re.search(word.format(re.escape(name)), line)}
    if len(own) > 1:
        raise NoEdit(f"{capped(line.strip(), 100)!r} names several files: put one name alone on the line before")
    if spoken and not own:
        raise NoEdit(f"{capped(min(spoken), 100)!r} may not be changed; editable: {', '.join(editable)}")
    return own.pop() if own else None


def check_complete(lines: Sequence[str], known: Iterable[str], where: str) -> None:
    """Refuse new lines of which one stands for omitted ones and was not in the file (`known`) before."""
    before = {line.strip() for line in known}
    for line in lines:
        if LEFT_OUT.match(line[:LINE_CHARACTERS]) and line.strip() not in before:
            raise NoEdit(
                f"{where}: {capped(line.strip(), 100)!r} stands for lines that are left out; "
                "nothing is filled in: write every line"
            )


def what_lacks(text: str, wanted: Sequence[str]) -> str:
    """For a reason: the first line that a file does not have."""
    lines = set(text.split("\n"))
    lacking = next((line for line in wanted if line.strip() and line not in lines), "")
    return f"it has no line {capped(lacking, 100)!r}" if lacking else "its lines are there, but not in a row"
