"""The place of a change in a file: the only one at which all its old lines match, or none.

A change in the wrong place is worse than a refused one, since it goes unnoticed. So every old line has to be
there, and at one place only. What is forgiven is what cannot lead elsewhere.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise

from tasks.formats._answer import GitText, ended_alike

BLANK = " \t\r"


@dataclass(frozen=True)
class Line:
    """A line of a change: it stays (' '), goes ('-') or comes ('+')."""

    kind: str
    text: str


Change = tuple[Line, ...]


@dataclass(frozen=True)
class Replacement:
    """Lines `start` to `end` (exclusive, from 0) of a file, and what is to stand there."""

    start: int
    end: int
    lines: tuple[str, ...]


def old(change: Change) -> tuple[str, ...]:
    """The lines that a change finds."""
    return tuple(line.text for line in change if line.kind != "+")


def change_of(before: Sequence[str], after: Sequence[str]) -> Change:
    """The change that makes some lines into others."""
    found: list[Line] = []
    for tag, start, end, new_start, new_end in SequenceMatcher(None, before, after, False).get_opcodes():
        found += [Line(" " if tag == "equal" else "-", text) for text in before[start:end]]
        found += [Line("+", text) for text in after[new_start:new_end] if tag != "equal"]
    return tuple(found)


def exact(text: GitText, change: Change) -> list[Replacement]:
    """Every place at which the old lines stand as they are."""
    return _everywhere(text, change, str, as_is=True)


def trailing(text: GitText, change: Change) -> list[Replacement]:
    """Every place at which they stand but for blanks and carriage returns at their ends, which stay the file's."""
    return _everywhere(text, change, lambda line: line.rstrip(BLANK), as_is=False)


def _everywhere(text: GitText, change: Change, key: Callable[[str], str], as_is: bool) -> list[Replacement]:
    wanted, lines = [key(line) for line in old(change)], [key(line) for line in text.lines]
    return [_filled(text, change, start, start + len(wanted), as_is) for start in _starts(lines, wanted)]


def _starts(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    if wanted:
        for start in range(len(lines) - len(wanted) + 1):
            if lines[start] == wanted[0] and lines[start : start + len(wanted)] == wanted:
                yield start


def _filled(text: GitText, change: Change, start: int, end: int, as_is: bool = False) -> Replacement:
    """The change at the place of its old lines. Context lines are the file's own."""
    found, its = list[str](), iter(text.lines[start:end])
    for line in change:
        if line.kind == "+":
            found.append(line.text if as_is else ended_alike(line.text, text.windows))
        else:
            own = next(its)
            found += [own] if line.kind == " " else []
    return Replacement(start, end, tuple(found))


def gapped(text: GitText, change: Change) -> list[Replacement]:
    """Every place at which the old lines stand but for one line of the file between two of them, which stays.

    A gap is only where it is clear on which side of it new lines belong: where none come.
    """
    wanted = [line.rstrip(BLANK) for line in old(change)]
    lines = [line.rstrip(BLANK) for line in text.lines]
    found = list[Replacement]()
    for after in sorted(_joints(change)):
        head, tail = wanted[:after], wanted[after:]
        for start in _starts(lines, head):
            gap = start + after
            if lines[gap + 1 : gap + 1 + len(tail)] == tail:
                # The change, with the missing line behind so many of its old lines.
                at = [place for place, line in enumerate(change, 1) if line.kind != "+"][after - 1]
                whole = (*change[:at], Line(" ", text.lines[gap]), *change[at:])
                found.append(_filled(text, whole, start, gap + 1 + len(tail)))
    return list(dict.fromkeys(found))


def _joints(change: Change) -> set[int]:
    """After how many old lines the next old line follows at once."""
    found, count = set[int](), 0
    for line, following in pairwise(change):
        count += line.kind != "+"
        if "+" not in (line.kind, following.kind):
            found.add(count)
    return found


def shifted(text: GitText, change: Change) -> list[Replacement]:
    """Every place at which the old lines stand with another indentation, and the new ones can be moved alike.

    Alike: the same blanks more or less at every line, or tabs in place of so many blanks each, or the reverse.
    """
    wanted = [line.strip(BLANK) for line in old(change)]
    lines = [line.strip(BLANK) for line in text.lines]
    if sum(map(bool, wanted)) < 2:
        return []
    found = []
    for start in _starts(lines, wanted):
        move = _move(old(change), text.lines[start : start + len(wanted)])
        if move is None:
            continue
        moved = [_moved(line, move) for line in change]
        whole = tuple(line for line in moved if line is not None)
        if len(whole) == len(change):
            found.append(_filled(text, whole, start, start + len(wanted)))
    return found


def _moved(line: Line, move: Callable[[str], str | None]) -> Line | None:
    if line.kind != "+" or not line.text.strip(BLANK):
        return line
    indent = move(_indent(line.text))
    return None if indent is None else Line("+", indent + line.text.lstrip(" \t"))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _move(stated: Sequence[str], there: Sequence[str]) -> Callable[[str], str | None] | None:
    """The one shift that turns every stated indentation into the file's; None without one."""
    both = zip(stated, there, strict=True)
    pairs = {(_indent(ours), _indent(theirs)) for ours, theirs in both if ours.strip(BLANK)}
    ours, theirs = min(pairs, key=lambda pair: len(pair[0]))
    moves: list[Callable[[str], str | None]] = []
    if theirs.startswith(ours):
        moves.append(partial(operator.add, theirs[len(ours) :]))
    if ours.startswith(theirs):
        moves.append(partial(_less, ours[len(theirs) :]))
    for width in (8, 4, 2):
        moves += [partial(_tabs, width), partial(_blanks, width)]
    return next((move for move in moves if all(move(ours) == theirs for ours, theirs in pairs)), None)


def _less(less: str, indent: str) -> str | None:
    return indent[len(less) :] if indent.startswith(less) else None


def _tabs(width: int, indent: str) -> str | None:
    count, rest = divmod(len(indent), width)
    return None if rest or indent.strip(" ") else "\t" * count


def _blanks(width: int, indent: str) -> str:
    return indent.replace("\t", " " * width)


def closest(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The line from which the file is most like these lines; None where nothing is."""
    ours = Counter(line.strip() for line in wanted if line.strip())
    if not ours or not lines:
        return None
    span = max(len(wanted), 1)
    scores = [
        sum((Counter(line.strip() for line in lines[start : start + span]) & ours).values())
        for start in range(max(len(lines) - span + 1, 1))
    ]
    first = wanted[0].strip()
    best = max(range(len(scores)), key=lambda start: (scores[start], lines[start].strip() == first))
    if scores[best]:
        return best
    longest = max(ours, key=len)
    likeness, at = max(
        (SequenceMatcher(None, line.strip(), longest).quick_ratio(), -at) for at, line in enumerate(lines)
    )
    return -at if likeness > 0.6 else None
