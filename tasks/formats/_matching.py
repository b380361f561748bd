"""The place of a change in a file: where all its old lines stand in a row, white space at their ends aside.

A change in the wrong place is worse than a refused one, since it goes unnoticed. So every old line has to be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tasks.formats._answer import GitText, ended_alike


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


def places(text: GitText, change: Change) -> list[Replacement]:
    """Every place at which the old lines stand as they are; without any, those where only their ends differ."""
    if exact := _where(text.lines, change, str):
        return [_filled(text, change, start) for start in exact]
    alike = tuple(Line(line.kind, ended_alike(line.text, text.windows)) for line in change)
    return [_filled(text, alike, start) for start in _where(text.lines, alike, str.rstrip)]


def _where(lines: Sequence[str], change: Change, key: Callable[[str], str]) -> list[int]:
    wanted, every = [key(line) for line in old(change)], [key(line) for line in lines]
    starts = range(len(every) - len(wanted) + 1) if wanted else ()
    return [start for start in starts if every[start : start + len(wanted)] == wanted]


def _filled(text: GitText, change: Change, start: int) -> Replacement:
    """The change at the place of its old lines. Lines that stay are the file's own."""
    found, at = list[str](), start
    for line in change:
        if line.kind == "+":
            found.append(line.text)
            continue
        found += [text.lines[at]] if line.kind == " " else []
        at += 1
    return Replacement(start, at, tuple(found))


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
