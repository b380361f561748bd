"""A parser of unified diffs as language models write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tasks.editing.patches import is_cut_off
from tasks.formats._answer import FENCE, NoEdit, fences, lines_of
from tasks.formats._matching import Change, Line
from tasks.system.redact import capped

NUMBERED = re.compile(r"^@@\s*-(\d{1,9})(?:,(\d{1,9}))?\s+\+(\d{1,9})(?:,(\d{1,9}))?\s*@@(.*)$")
ENDS_FENCED = re.compile(r"^(```|@@|diff |index |Index: |new file mode )")
"""Lines that end a hunk in a fenced block; any other line without a sign is a context line without its blank."""
BEGIN = re.compile(r"^@@+[ .\d,+-]*(?:@@)?(.*)$")
FORBIDDEN = re.compile(
    r"^(rename (from|to) |copy (from|to) |similarity index |old mode |new mode |deleted file mode |GIT binary patch"
    r"|Binary files |new file mode (?!100644\b)|index [0-9a-f]+\.\.[0-9a-f]+ (?!100644\b))"
)
CODE = re.compile(r"^[ +-](?! ?[\w*`\"'])|^[+-]\S| \S")
"""A line of a diff that is no line of a list."""
ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


@dataclass(frozen=True)
class Hunk:
    """One hunk, as stated."""

    line: int
    """Of the answer, from 1."""
    change: Change
    start: int | None = None
    """In the file, from 1, if it is stated along with counts that are right, or too large by the lines that `lacks`."""
    lacks: int = 0
    """Lines that its header counts but it does not have, on both sides."""
    heading: str = ""
    """The text after the numbers: git puts the function there."""
    old_ended: bool = True
    new_ended: bool = True
    """Whether each side's last line has a newline; False where the hunk says that it has none."""


@dataclass(frozen=True)
class FileDiff:
    """The hunks of one file; the names as stated, None for /dev/null and empty where none is."""

    old: str | None = ""
    new: str | None = ""
    hunks: tuple[Hunk, ...] = ()


@dataclass
class Reader:
    """The state of reading a diff."""

    lines: Sequence[str]
    fenced: bool
    at: int = 0
    found: list[FileDiff] = field(default_factory=list)


def is_diff(lines: Sequence[str]) -> bool:
    """Whether an answer holds the beginning of a hunk or the names of a diff."""
    heads = (line.startswith("--- ") and after.startswith("+++ ") for line, after in pairwise(lines))
    return any(line.startswith("@@") for line in lines) or any(heads)


def read(answer: str) -> list[FileDiff]:
    """The files of a diff. If any fenced block holds one, what stands outside of such blocks is no part of it.

    Raises:
        NoEdit: there is no hunk, a line belongs to none, or it is about more than text.
    """
    lines = lines_of(answer)
    reader = Reader(lines, fenced=False)
    if any(FENCE.match(line) for line in lines):
        blocks = [fence for fence in fences(answer) if is_diff(fence.body)]
        inside = {at: line for fence in blocks for at, line in enumerate(fence.body, fence.line)}
        for after in (fence.line + len(fence.body) + 1 for fence in blocks):
            # Closed by a line of the diff, such as a fence in a docstring without its blank.
            if after < len(lines) and CODE.match(lines[after]):
                raise NoEdit(
                    f"line {after + 1} of the answer, {capped(lines[after], 80)!r}, goes on with the diff behind its "
                    "fence: make the fence longer than any inside"
                )
        if inside:
            reader = Reader([inside.get(at, "```") for at in range(len(lines))], fenced=True)

    while reader.at < len(reader.lines):
        _step(reader)
    found = [each for each in reader.found if each.hunks or each.old is None]
    if not found:
        raise NoEdit("no hunk of a unified diff found: write `--- a/NAME`, `+++ b/NAME`, `@@ ... @@` and its lines")
    return found


def _step(reader: Reader) -> None:
    """Read a head, a hunk, or a line that is neither."""
    lines, at = reader.lines, reader.at
    line = lines[at].rstrip("\r")
    reader.at += 1
    if FORBIDDEN.match(line):
        raise NoEdit(
            f"line {at + 1} of the answer, {capped(line, 80)!r}: an edit may change and add texts, nothing else"
        )
    adds_file = line.startswith("new file mode ")
    if adds_file and not any(each.startswith("--- ") for each in lines[at + 1 : at + 3]):
        raise NoEdit(f"line {at + 1} of the answer adds a file without a line: give it one, or leave it out")
    if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
        reader.found.append(FileDiff(_path(line), _path(lines[at + 1])))
        reader.at += 1
        if reader.at < len(lines) and lines[reader.at][:1] in (" ", "+", "-") and lines[reader.at].strip():
            _add(reader, reader.at, reader.at)
    elif line.startswith("@@"):
        if not reader.found:
            reader.found.append(FileDiff())
        _add(reader, at, at + 1)
    elif line[:1] in ("+", "-") and reader.found and line.strip("+-= "):
        raise NoEdit(
            f"line {at + 1} of the answer, {capped(line, 80)!r}, is in no hunk: begin each line of a hunk with a "
            "blank, `-` or `+`, and put the diff between ```diff and ```"
        )


def _path(line: str) -> str | None:
    """The name in a head, without its prefix letter; None for /dev/null."""
    said = line[4:].rstrip("\r").partition("\t")[0].rstrip()
    if said.startswith('"') and said.endswith('"') and len(said) > 1:
        said = ESCAPE.sub(_unescaped, said[1:-1].encode()).decode(errors="replace")
    return None if said == "/dev/null" else said


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else LETTERS.get(code, code)


def _add(reader: Reader, head: int, first: int) -> None:
    """Read the hunk whose lines begin at `first`, and note it with the file that it is of."""
    stated = reader.lines[head] if head < first else ""
    body = list(_body(reader, first))
    numbers = NUMBERED.match(stated)
    begin = BEGIN.match(stated)
    hunk = _hunk(head + 1, body, (numbers[5] if numbers else begin[1] if begin else "").strip())
    if numbers:
        start, olds, _, news = (int(numbers[which] or 1) for which in (1, 2, 3, 4))
        _check_whole(hunk, olds, news, is_last=not any(line.strip() for line in reader.lines[reader.at :]))
        hunk = _trusted(hunk, body, start, olds, news)
    if any(line.kind != " " for line in hunk.change):
        its = reader.found[-1]
        reader.found[-1] = replace(its, hunks=(*its.hunks, hunk))


def _body(reader: Reader, first: int) -> Iterator[str]:
    """The lines of a hunk, with their sign; empty for a line without anything."""
    reader.at = first
    while reader.at < len(reader.lines):
        line = reader.lines[reader.at]
        signed = line[:1] in (" ", "+", "-", "\\")
        if not signed and line.rstrip("\r") and (not reader.fenced or ENDS_FENCED.match(line)):
            return
        following = [*reader.lines[reader.at + 1 : reader.at + 3], "", ""]
        if line.startswith("--- ") and following[0].startswith("+++ ") and following[1].startswith("@@"):
            return
        reader.at += 1
        yield line if signed else f" {line}" if line.rstrip("\r") else ""


def _hunk(line: int, body: Sequence[str], heading: str) -> Hunk:
    """A hunk from its lines. One without anything is a blank line that stays; behind the last, it may be none."""
    its = list(body)
    while its and not its[-1]:
        its.pop()
    its = [each or " " for each in its]
    ended = {"-": True, "+": True}
    for above, said in pairwise(its):
        if said.startswith("\\"):
            ended |= {side: False for side in ("-", "+") if above[0] in (side, " ")}
    change = tuple(Line(each[0], each[1:]) for each in its if not each.startswith("\\"))
    return Hunk(line, change, heading=heading, old_ended=ended["-"], new_ended=ended["+"])


def _check_whole(hunk: Hunk, olds: int, news: int, is_last: bool) -> None:
    """Refuse a hunk that is cut off. Behind one in a fence stands the fence's end, so that it is not the last."""
    found = sum(line.kind != "+" for line in hunk.change), sum(line.kind != "-" for line in hunk.change)
    changed = [line.kind for line in hunk.change if line.kind != " " or line.text.strip()]
    if is_cut_off((olds, news), found, changed[-1:] == ["-"], is_last):
        raise NoEdit(
            f"the hunk in line {hunk.line} of the answer has {found[0]} old and {found[1]} new lines, and its head "
            f"says {olds} and {news}: it may be cut off. Write all of it between ```diff and ```, and `@@ ... @@` "
            "without numbers"
        )


def _trusted(hunk: Hunk, body: Sequence[str], start: int, olds: int, news: int) -> Hunk:
    """The hunk with its line number, if it is one to believe: both counts are right, or too large by one line."""
    blank = len(body) - sum(line.startswith("\\") for line in body) - len(hunk.change)
    old = sum(line.kind != "+" for line in hunk.change)
    new = sum(line.kind != "-" for line in hunk.change)
    spare = olds - old
    if spare != news - new or not 0 <= spare <= blank + 1:
        return hunk
    return replace(hunk, start=start, lacks=max(spare - blank, 0))
