"""Search and replace blocks.

    train.py
    <<<<<<< SEARCH
    learning_rate = 0.1
    =======
    learning_rate = 0.05
    >>>>>>> REPLACE

The name may be left out where one file is editable, and after a block of the same file. Markers may be longer, for
texts that hold such lines themselves. What is searched has to be in the file once, as the blocks before have left it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.formats import _matching
from tasks.formats._answer import FENCE, GitText, NoEdit, complete, lines_of, named
from tasks.formats._matching import Replacement
from tasks.system.redact import capped, clean, quote

OPEN = re.compile(r"^(<{5,})[ \t]*SEARCH\b:?(.*)$")
CLOSE = re.compile(r"^(>{5,})[ \t]*REPLACE\b")
SHOWN_PLACES = 8
SHOWN_LINES, SHOWN_CHARACTERS = 12, 160
"""Of a file, in a reason; characters of each line."""


@dataclass(frozen=True)
class Block:
    """Lines to search, and their replacement."""

    name: str
    search: tuple[str, ...]
    replace: tuple[str, ...]


def read(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The texts of the files that the blocks name, after all of them.

    Raises:
        NoEdit: a block is broken, names no editable file, or does not match exactly once.
    """
    found = blocks(answer, editable)
    texts: dict[str, str] = {}
    for number, block in enumerate(found, 1):
        where = f"block {number} of {len(found)} ({block.name})"
        before = texts.get(block.name, files.get(block.name))
        complete(block.replace, (before or "").split("\n"), where)
        texts[block.name] = _applied(before, block, where)
    return texts


def blocks(answer: str, editable: Sequence[str]) -> list[Block]:
    """The blocks of an answer.

    Raises:
        NoEdit: there is none, or one is broken or names no editable file.
    """
    lines, found, begin = lines_of(answer), list[Block](), 0
    for at, line in enumerate(lines):
        if at >= begin and (opened := OPEN.match(line)):
            number = len(found) + 1
            middle, end = _markers(lines, at, len(opened[1]), number)
            name = _name(lines[begin:at], opened[2], found, editable, number)
            found.append(Block(name, tuple(lines[at + 1 : middle]), tuple(lines[middle + 1 : end])))
            begin = end + 1
    if not found:
        raise NoEdit("no block found: begin each with a line `<<<<<<< SEARCH`, and end it with `>>>>>>> REPLACE`")
    return found


def _markers(lines: Sequence[str], start: int, length: int, number: int) -> tuple[int, int]:
    """The lines of the middle and the end of the block that begins at `start`."""
    middles = list[int]()
    for at in range(start + 1, len(lines)):
        line = lines[at].rstrip()
        closing = CLOSE.match(line)
        if line == "=" * length:
            middles.append(at)
        elif (opening := OPEN.match(line)) and len(opening[1]) == length:
            break
        elif closing and len(closing[1]) == length:
            if len(middles) == 1:
                return middles[0], at
            what = f"{len(middles)} lines" if middles else "no line"
            raise NoEdit(
                f"block {number} has {what} `{'=' * length}` between SEARCH and REPLACE, where one belongs"
                + "; make all its markers longer if its text holds such a line" * bool(middles)
            )
    raise NoEdit(f"block {number} has no end: no line `{'>' * length} REPLACE` before the next block or the end")


def _name(above: Sequence[str], behind: str, found: Sequence[Block], editable: Sequence[str], number: int) -> str:
    """Which file a block is for: named behind SEARCH, on the line before, or the same as before."""
    spoken = [behind, *(FENCE.sub(r"\2", line) for line in reversed(above) if line.strip())][:3]
    for line in spoken[: 3 if above and FENCE.match(above[-1]) else 2]:
        name = named(line, editable)
        if name is not None:
            return name
    if found:
        return found[-1].name
    if len(editable) == 1:
        return editable[0]
    raise NoEdit(f"block {number} names no file: put its name on the line before; editable: {', '.join(editable)}")


def _applied(before: str | None, block: Block, where: str) -> str:
    if not any(block.search) and not before:
        return str(GitText(block.replace))
    if not block.search:
        raise NoEdit(f"{where}: SEARCH is empty, which makes a new file, and {block.name} is there already")
    if before is None:
        raise NoEdit(f"{where}: there is no file {block.name} yet; an empty SEARCH makes it")
    if block.search == block.replace:
        raise NoEdit(f"{where}: SEARCH and REPLACE are the same")
    text = GitText.of(before)
    places = _matching.places(text, _matching.change_of(block.search, block.replace))
    if not places:
        raise NoEdit(f"{where}: SEARCH is not in the file{nearest(text, block.search)}")
    if len(places) > 1:
        raise NoEdit(f"{where}: SEARCH is in the file {several(places)}; add lines around it until it is there once")
    return str(put(text, places))


def put(text: GitText, places: Sequence[Replacement]) -> GitText:
    """A text with its places filled; they do not overlap."""
    lines = list(text.lines)
    for place in sorted(places, key=lambda place: -place.start):
        lines[place.start : place.end] = place.lines
    return GitText(tuple(lines), text.ended)


def several(places: Sequence[Replacement]) -> str:
    """At how many places, and which: `3 times (lines 12, 40, 71)`."""
    shown = ", ".join(str(place.start + 1) for place in places[:SHOWN_PLACES])
    return f"{len(places)} times (lines {shown}{', ...' * (len(places) > SHOWN_PLACES)})"


def nearest(text: GitText, wanted: Sequence[str]) -> str:
    """For a reason: the lines of the file that are most like lines it does not have."""
    if not text.lines:
        return ": the file is empty"
    at = _matching.closest(text.lines, wanted)
    if at is None:
        first = next((line for line in wanted if line.strip()), "")
        return f", and no line of it is like {capped(first.strip(), 100)!r}"
    missing = next((line for line in wanted if line.strip() and line not in text.lines), "")
    which = f"it has no line {capped(missing, 100)!r}" if missing else "its lines are there, but not in a row"
    count = min(max(len(wanted), 3), SHOWN_LINES)
    chosen = enumerate(text.lines[at : at + count], at + 1)
    shown = "\n".join(f"{number:>4} {' '.join(clean(line))}" for number, line in chosen)
    return f"; {which}. The lines most like it are:\n{quote(shown, SHOWN_CHARACTERS, count)}"
