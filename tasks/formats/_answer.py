"""Shared parts of the formats: lines, fences, names of files, and the exception for an answer without an edit."""

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
LABEL = re.compile(r"^(?:file(?: ?name)?|path|new file|title)\s*[:=]\s*", re.IGNORECASE)

LOOKED_AT = 300
"""Characters of a line in which a name, or words that stand for left out lines, are looked for."""
DOTS = r"(?:\.\.\.+|\u2026)"
COMMENT = r"^\s*(?:#+|//+|/\*+|<!--)\s*[\[(]?"
STAYS = r"\b(?:unchanged|here|same|before|omitted|goes?|stays?|remains?|continues?|above|below)\b"
PARTS = r"(?:code|file|functions?|class(?:es)?|methods?|implementation|script|logic|body|program|imports?|content)"
LEFT_OUT = re.compile(
    rf"{COMMENT}{DOTS}"
    rf"|^\s*{DOTS}\s*\(?\w+"  # dots and words are no Python
    rf"|{COMMENT}.*\b(?:rest|existing|unchanged|remaining|same|previous)\b.*{DOTS}[\s\])*/>-]*$"
    rf"|{COMMENT}.*\b(?:rest of|remaining|remainder|existing)\b.*\b{PARTS}\b.*{STAYS}"
    rf"|{COMMENT}(?:keep |the )*(?:existing|previous|original|same|unchanged|remaining|your) {PARTS}"
    rf"(?: \w+)?(?: {STAYS})*[\s.:\])*/>-]*$"
    rf"|{COMMENT}(?:the )?(?:rest|remainder)\b.*{STAYS}",
    re.IGNORECASE,
)
"""A line that stands for omitted ones."""
BARE_DOTS = re.compile(rf"^(\s*){DOTS}\s*$")
HEADER = re.compile(r"^\s*(?:async def|def|class)\b.*:\s*(?:#.*)?$")


class NoEdit(Exception):
    """An answer holds no edit that can be applied. The reason has enough for a model to repair the answer.

    Its first line is a sentence; lines of a file may follow, quoted.
    """


@dataclass(frozen=True)
class GitText:
    """A text as git sees it: lines end with a newline and with nothing else."""

    lines: tuple[str, ...]
    ended: bool = True
    """Whether the last line has its newline."""

    @classmethod
    def of(cls, text: str) -> GitText:
        lines = text.split("\n")
        return cls(tuple(lines[:-1]), True) if lines[-1] == "" else cls(tuple(lines), False)

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n" * (self.ended and bool(self.lines))

    @property
    def windows(self) -> bool | None:
        """Whether its lines end as on Windows; None when some do and some do not, or there are none."""
        found = {line.endswith("\r") for line in self.lines}
        return found.pop() if len(found) == 1 else None


def lines_of(answer: str) -> list[str]:
    """The lines of an answer, without a newline."""
    return list(GitText.of(answer).lines)


def ended_alike(line: str, windows: bool | None) -> str:
    """A line with the end that the lines of its file have."""
    return line if windows is None else line.removesuffix("\r") + "\r" * windows


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
    found: list[Fence] = []
    above, opened, body = "", None, list[str]()
    for number, line in enumerate(lines_of(answer), 1):
        match = FENCE.match(line.rstrip())
        if opened is None and match:
            opened, body = (number, match[1], match[2].strip()), []
        elif opened is None:
            above = line if line.strip() else above
        elif match and not match[2].strip() and match[1].startswith(opened[1]):
            found.append(Fence(opened[0], opened[2], above, tuple(body)))
            above, opened = "", None
        else:
            body.append(line)
    if opened is not None:
        raise NoEdit(
            f"the fence opened in line {opened[0]} of the answer is never closed: the answer is cut off. "
            "Write all of it, and a fence longer than any inside"
        )
    return found


def named(line: str, editable: Sequence[str]) -> str | None:
    """The editable file that a line names, alone or as the only one in a sentence; None when it names none.

    Raises:
        NoEdit: the line is the name of another file, or names several.
    """
    # Without Markdown around it: train.py of `### **train.py**:`.
    said = LABEL.sub("", line[:LOOKED_AT].strip(DECORATION)).strip(DECORATION).removeprefix("./")
    if said in editable:
        return said
    if FILE.fullmatch(said) or PATH.fullmatch(said):
        raise NoEdit(not_editable(said, editable))
    whole = r"(?<![\w./-]){}(?![\w/-]|\.\w)"
    inside = {name for name in editable if re.search(whole.format(re.escape(name)), line[:LOOKED_AT])}
    if len(inside) > 1:
        raise NoEdit(f"{capped(line.strip(), 100)!r} names several files: put one name alone on the line before")
    return inside.pop() if inside else None


def not_editable(name: str, editable: Sequence[str]) -> str:
    return f"{capped(name, 100)!r} may not be changed; editable: {', '.join(editable) or 'nothing'}"


def complete(lines: Sequence[str], known: Iterable[str], where: str) -> None:
    """Refuse new lines of which one stands for omitted ones and was not in the file (`known`) before."""
    before = {line.strip() for line in known}
    for number, line in enumerate(lines):
        stub = None
        if dots := BARE_DOTS.match(line):
            above = next((each for each in reversed(lines[:number]) if each.strip()), "")
            stub = HEADER.match(above) and above.strip() not in before and dots[1]
        if (dots or LEFT_OUT.match(line[:LOOKED_AT])) and not stub and line.strip() not in before:
            raise NoEdit(
                f"{where}: {capped(line.strip(), 100)!r} stands for lines that are left out; "
                "nothing is filled in: write every line"
            )
