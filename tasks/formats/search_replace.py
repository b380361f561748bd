"""Search and replace blocks: a name, `<<<<<<< SEARCH`, old lines, `=======`, new lines, `>>>>>>> REPLACE`.

The name may be left out where one file is editable, and after a block of the same file. Markers may be longer, for
texts that hold such lines themselves. What is searched has to be in the file once, as the blocks before have left it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tasks.formats._answer import FENCE, NoEdit, check_complete, named, what_lacks

OPEN = re.compile(r"^(<{5,})[ \t]*SEARCH\b:?(.*)$")
MARKER = re.compile(r"^(?:(<{5,})[ \t]*SEARCH\b.*|(={5,})|(>{5,})[ \t]*REPLACE\b.*)$")


class Block(NamedTuple):
    """Lines to search, and their replacement."""

    name: str
    search: tuple[str, ...]
    replace: tuple[str, ...]


def read(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The texts of the files that the blocks name, after all of them; NoEdit where one does not match exactly once."""
    every = blocks(answer, editable)
    texts: dict[str, str] = {}
    for number, block in enumerate(every, 1):
        where = f"block {number} of {len(every)} ({block.name})"
        before = texts.get(block.name, files.get(block.name))
        check_complete(block.replace, (before or "").split("\n"), where)
        texts[block.name] = _applied(before, block, where)
    return texts


def blocks(answer: str, editable: Sequence[str]) -> list[Block]:
    """The blocks of an answer; NoEdit without any, or where one is broken or names no editable file."""
    every, above = list[Block](), list[str]()
    lines = iter(answer.split("\n"))
    for line in lines:
        if opened := OPEN.match(line):
            where, length = f"block {len(every) + 1}", len(opened[1])
            name = _name(above, opened[2], every, editable, where)
            search = _until("=" * length, lines, length, where)
            every.append(Block(name, search, _until(">" * length, lines, length, where)))
            above = []
        else:
            above.append(line)
    if not every:
        raise NoEdit("no block found: begin each with a line `<<<<<<< SEARCH`, and end it with `>>>>>>> REPLACE`")
    return every


def _until(signs: str, lines: Iterator[str], length: int, where: str) -> tuple[str, ...]:
    """The lines before the marker of these signs; another marker of this length may not come before it."""
    part = list[str]()
    for line in lines:
        marker = MARKER.match(line.rstrip())
        if marker and signs in marker.groups():
            return tuple(part)
        if marker and any(other and len(other) == length for other in marker.groups()):
            raise NoEdit(
                f"{where} has a line `{line.rstrip()[:40]}` where `{signs}` belongs: write SEARCH, `=======` and "
                "REPLACE once each, and make all markers longer if its text holds such a line"
            )
        part.append(line)
    raise NoEdit(f"{where} has no end: no line `{signs}` before the end of the answer")


def _name(above: Sequence[str], behind: str, earlier: Sequence[Block], editable: Sequence[str], where: str) -> str:
    """Which file a block is for: named behind SEARCH, on the line before, or the same as before."""
    spoken = [behind, *(FENCE.sub(r"\2", line) for line in reversed(above) if line.strip())]
    for line in spoken[: 3 if above and FENCE.match(above[-1]) else 2]:
        name = named(line, editable)
        if name is not None:
            return name
    if earlier:
        return earlier[-1].name
    if len(editable) == 1:
        return editable[0]
    raise NoEdit(f"{where} names no file: put its name on the line before; editable: {', '.join(editable)}")


def _applied(before: str | None, block: Block, where: str) -> str:
    if not any(block.search) and not before:
        return _joined(block.replace, True)
    if not block.search:
        raise NoEdit(f"{where}: SEARCH is empty, which makes a new file, and {block.name} is there already")
    if before is None:
        raise NoEdit(f"{where}: there is no file {block.name} yet; an empty SEARCH makes it")
    if block.search == block.replace:
        raise NoEdit(f"{where}: SEARCH and REPLACE are the same")
    lines, bare = before.removesuffix("\n").split("\n"), [line.rstrip() for line in block.search]
    places = _places([line.rstrip() for line in lines], bare)
    if not places:
        raise NoEdit(f"{where}: SEARCH is not in the file; {what_lacks(before, block.search)}")
    if len(places) > 1:
        raise NoEdit(
            f"{where}: SEARCH is in the file {len(places)} times (first in lines {places[0] + 1} and {places[1] + 1}); "
            "add lines around it until it is there once"
        )
    own = dict(zip(bare, lines[places[0] :], strict=False))  # of lines that stay, the file's own ends stay
    lines[places[0] : places[0] + len(bare)] = [own.get(line.rstrip(), line) for line in block.replace]
    return _joined(lines, before.endswith("\n"))


def _joined(lines: Sequence[str], ended: bool) -> str:
    return "\n".join(lines) + "\n" * (ended and bool(lines))


def _places(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where these lines stand in a row."""
    return [at for at in range(len(lines)) if [*lines[at : at + len(wanted)]] == [*wanted]]
