"""Unified diffs, as language models write them.

    --- a/train.py
    +++ b/train.py
    @@ -3,3 +3,3 @@
     gamma = 0.99
    -learning_rate = 0.1
    +learning_rate = 0.05
     steps = 100

`git apply` goes by the numbers and forgives context, so that a diff with wrong numbers may land in the wrong one of two
functions that are alike. Models are bad at numbers and good at text: here a hunk belongs where all its old lines are,
if that is one place. Numbers decide between several places only if all that the hunks say is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tasks.editing.patches import is_cut_off
from tasks.formats import _matching
from tasks.formats._answer import FENCE, GitText, NoEdit, complete, fences, lines_of, not_editable
from tasks.formats._matching import Change, Line, Replacement
from tasks.formats.search_replace import nearest, put, several
from tasks.system.redact import capped

NUMBERED = re.compile(r"^@@\s*-(\d{1,9})(?:,(\d{1,9}))?\s+\+(\d{1,9})(?:,(\d{1,9}))?\s*@@")
FORBIDDEN = re.compile(
    r"^(rename (from|to) |copy (from|to) |similarity index |old mode |new mode |deleted file mode |GIT binary patch"
    r"|Binary files |new file mode (?!100644\b)|index [0-9a-f]+\.\.[0-9a-f]+ (?!100644\b))"
)
ENDS_FENCED = re.compile(r"^(```|@@|diff |index |Index: |new file mode )")
"""Lines that end a hunk in a fenced block; any other line without a sign is a context line without its blank."""
CODE = re.compile(r"^[ +-](?! ?[\w*`\"'])|^[+-]\S| \S")
"""A line of a diff that is no line of a list."""


@dataclass(frozen=True)
class Hunk:
    """One hunk, as stated."""

    line: int
    """Of the answer, from 1."""
    old: str | None
    new: str | None
    """The names of its file, without the prefix letter; None for /dev/null and empty where none is."""
    change: Change
    start: int | None
    """Its first line in the file, from 1, if it is stated along with counts that are right."""
    ends: bool | None
    """Whether the new text has a newline at its end; None where the hunk does not say."""

    @property
    def where(self) -> str:
        return f"the hunk in line {self.line} of the answer"


def is_diff(lines: Sequence[str]) -> bool:
    """Whether an answer holds the beginning of a hunk or the names of a diff."""
    return any(line.startswith("@@") or _is_head(lines, at) for at, line in enumerate(lines))


def read(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The texts of the files that the diff is about, after all of its hunks.

    Raises:
        NoEdit: it is no diff, is about another file or more than text, or a hunk is not at one place of its file.
    """
    found: dict[str, list[Hunk]] = {}
    for hunk in _hunks(*_diff(answer)):
        found.setdefault(_name(hunk, editable), []).append(hunk)
    if not found:
        raise NoEdit("no hunk of a unified diff found: write `--- a/NAME`, `+++ b/NAME`, `@@ ... @@` and its lines")
    return {name: _applied(name, hunks, files.get(name)) for name, hunks in found.items()}


def _diff(answer: str) -> tuple[list[str], bool]:
    """The lines of an answer, and whether only those of fenced blocks that hold a diff are left."""
    lines = lines_of(answer)
    if not any(FENCE.match(line) for line in lines):
        return lines, False
    blocks = [fence for fence in fences(answer) if is_diff(fence.body)]
    for after in (fence.line + len(fence.body) + 1 for fence in blocks):
        # Closed by a line of the diff, such as a fence in a docstring without its blank.
        if after < len(lines) and CODE.match(lines[after]):
            raise NoEdit(
                f"line {after + 1} of the answer, {capped(lines[after], 80)!r}, goes on with the diff behind its "
                "fence: make the fence longer than any inside"
            )
    inside = {at: line for fence in blocks for at, line in enumerate(fence.body, fence.line)}
    return ([inside.get(at, "```") for at in range(len(lines))], True) if inside else (lines, False)


def _is_head(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")


def _hunks(lines: Sequence[str], fenced: bool) -> Iterator[Hunk]:
    """Every hunk that changes something, in order."""
    old: str | None = ""
    new: str | None = ""
    at, has_names = 0, False
    while at < len(lines):
        line, here = lines[at].rstrip("\r"), at + 1
        if FORBIDDEN.match(line):
            raise NoEdit(f"line {here} of the answer, {capped(line, 80)!r}: an edit may change and add texts, no more")
        if line.startswith("new file mode ") and not any(_is_head(lines, near) for near in range(here, here + 2)):
            raise NoEdit(f"line {here} of the answer adds a file without a line: give it one, or leave it out")
        at += 1
        if _is_head(lines, at - 1):
            old, new, has_names = _path(line), _path(lines[at]), True
            at += 1
            if at == len(lines) or lines[at][:1] not in (" ", "+", "-") or not lines[at].strip():
                continue
            line = ""  # its hunk begins without a head
        elif not line.startswith("@@"):
            if has_names and line[:1] in ("+", "-") and line.strip("+-= "):
                raise NoEdit(
                    f"line {here} of the answer, {capped(line, 80)!r}, is in no hunk: begin each line of a hunk with "
                    "a blank, `-` or `+`, and put the diff between ```diff and ```"
                )
            continue
        end = _end(lines, at, fenced)
        is_last = not any(line.strip() for line in lines[end:])
        hunk = _hunk(here, old, new, line, lines[at:end], is_last)
        at = end
        if any(each.kind != " " for each in hunk.change):
            yield hunk


def _path(line: str) -> str | None:
    """The name in a head; None for /dev/null."""
    said = line[4:].rstrip("\r").partition("\t")[0].rstrip().strip('"')
    return None if said == "/dev/null" else said


def _end(lines: Sequence[str], first: int, fenced: bool) -> int:
    """Where the hunk whose lines begin at `first` has ended."""
    for at in range(first, len(lines)):
        line = lines[at]
        signed = line[:1] in (" ", "+", "-", "\\")
        if not signed and line.rstrip("\r") and (not fenced or ENDS_FENCED.match(line)):
            return at
        if _is_head(lines, at) and lines[at + 2 : at + 3] and lines[at + 2].startswith("@@"):
            return at
    return len(lines)


def _hunk(number: int, old: str | None, new: str | None, head: str, body: Sequence[str], is_last: bool) -> Hunk:
    """A hunk from its lines. A line without anything is a blank one that stays; behind the last, it is none."""
    signed = [line if line[:1] in (" ", "+", "-", "\\") else f" {line}" if line.rstrip("\r") else "" for line in body]
    while signed and not signed[-1]:
        signed.pop()
    ends = None
    for above, line in pairwise(signed):
        if line.startswith("\\"):
            ends = above[:1] == "-"
    change = tuple(Line(line[:1] or " ", line[1:]) for line in signed if not line.startswith("\\"))
    counts = sum(line.kind != "+" for line in change), sum(line.kind != "-" for line in change)
    start = None
    if numbers := NUMBERED.match(head):
        stated = int(numbers[2] or 1), int(numbers[4] or 1)
        changed = [line.kind for line in change if line.kind != " " or line.text.strip()]
        if is_cut_off(stated, counts, changed[-1:] == ["-"], is_last):
            raise NoEdit(
                f"the hunk in line {number} of the answer has {counts[0]} old and {counts[1]} new lines, and its head "
                f"says {stated[0]} and {stated[1]}: it may be cut off. Write all of it between ```diff and ```, and "
                "`@@ ... @@` without numbers"
            )
        blank = len(body) - len(signed)  # at the end of the hunk, where the head may count one
        is_right = stated[0] - counts[0] == stated[1] - counts[1] and 0 <= stated[0] - counts[0] <= blank
        start = int(numbers[1]) if is_right else None
    return Hunk(number, old, new, change, start, ends)


def _name(hunk: Hunk, editable: Sequence[str]) -> str:
    """The one file that a hunk is about."""
    if hunk.new is None:
        raise NoEdit(f"the diff removes {hunk.old!r}: an edit may change and add files, nothing else")
    if hunk.new == "":
        if len(editable) == 1:
            return editable[0]
        raise NoEdit(f"the diff names no file: write `--- a/NAME` and `+++ b/NAME`; editable: {', '.join(editable)}")
    new = _without_prefix(hunk.new, "b/", editable)
    old = new if hunk.old is None else _without_prefix(hunk.old, "a/", editable)
    for name in (new, old):
        if name not in editable:
            raise NoEdit(not_editable(name, editable))
    if new != old:
        raise NoEdit(f"the diff makes {old} into {new}: name one file, twice (--- a/{new}, +++ b/{new})")
    return new


def _without_prefix(name: str, prefix: str, editable: Sequence[str]) -> str:
    return name if name in editable else name.removeprefix(prefix).removeprefix("./")


def _applied(name: str, hunks: Sequence[Hunk], before: str | None) -> str:
    if any(hunk.old is None for hunk in hunks) and before is not None:
        raise NoEdit(f"the diff adds {name}, which is there already: change it with `--- a/{name}`")
    for hunk in hunks:
        new = [line.text for line in hunk.change if line.kind == "+"]
        complete(new, (before or "").split("\n"), f"{hunk.where} ({name})")
    if not before and not any(_matching.old(hunk.change) for hunk in hunks):
        lines = tuple(line.text for hunk in hunks for line in hunk.change)
        return str(GitText(lines, all(hunk.ends is not False for hunk in hunks)))
    if before is None:
        raise NoEdit(f"there is no file {name} yet: add it with `--- /dev/null`")
    text = GitText.of(before)
    every = [_places(text, hunk, name) for hunk in hunks]
    # One hunk that is not where it says shows that the numbers are not to be believed.
    stated = ([place for place in its if place.start + 1 == hunk.start] for hunk, its in zip(hunks, every, strict=True))
    believed = all(stated)
    chosen = [_one(hunk, its, believed, name) for hunk, its in zip(hunks, every, strict=True)]
    both = sorted(zip(chosen, hunks, strict=True), key=lambda pair: (pair[0].start, pair[0].end))
    for (first, _), (second, hunk) in pairwise(both):
        if second.start < first.end:
            raise NoEdit(f"{hunk.where} ({name}) is about the same lines as another one: write them as one")
    # A hunk that reaches the end of the text may say whether it has a newline there.
    place, hunk = max(both, key=lambda pair: pair[0].end)
    speaks = place.end == len(text.lines) and hunk.ends is not None
    return str(replace(put(text, chosen), ended=bool(hunk.ends) if speaks else text.ended))


def _places(text: GitText, hunk: Hunk, name: str) -> list[Replacement]:
    wanted = _matching.old(hunk.change)
    if not any(line.strip() for line in wanted) and len(text.lines) > len(wanted):
        raise NoEdit(f"{hunk.where} ({name}) has no line of the file to be found by: add some before and after it")
    if found := _matching.places(text, hunk.change):
        return found
    raise NoEdit(f"{hunk.where} ({name}): its old lines are not in the file{nearest(text, wanted)}")


def _one(hunk: Hunk, places: Sequence[Replacement], believed: bool, name: str) -> Replacement:
    left = places if len(places) == 1 else [one for one in places if believed and one.start + 1 == hunk.start]
    if len(left) == 1:
        return left[0]
    raise NoEdit(f"{hunk.where} ({name}): its old lines are in the file {several(places)}; add lines around the change")
