"""The formats in which a language model may write an edit: blocks, diffs, and whole files.

An edit applies whole or not at all, and only where its place is certain: a model can repair a refused answer, but an
edit in the wrong place goes unnoticed.

    search_replace    a name, `<<<<<<< SEARCH`, old lines, `=======`, new lines, `>>>>>>> REPLACE`. Markers may be
                      longer, for texts that hold such lines themselves. What is searched has to be in the file once,
                      as the blocks before have left it.
    diff              a unified diff, which git reads and applies (tasks/editing/patches.py). Models are bad at numbers
                      and good at text: the numbers may be wrong or missing (`@@ ... @@`).
    whole_file        a fence for each file.

The name of a file stands on the line before a block or a fence, or behind its opening. It may be left out where one
file is editable, and after a block of the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from tasks.editing import patches
from tasks.sandbox.reader import EditFailed
from tasks.system.redact import capped

FENCE = re.compile(r"^(`{3,}|~{3,})([^`]*)$")
"""At the beginning of its line: with a blank before it, it is a line of a diff."""
FILE = re.compile(r"(?<![\w/])(?:[\w-]|\.{0,2}/)[\w./-]*\.(?:py|pyi|md|txt|toml|json|ya?ml|cfg|ini|sh|c|cpp|h|rs)\b")
"""A file name in a sentence."""
DIFF = re.compile(r"^(?:diff --git |@@|--- .*\n\+\+\+ )", re.MULTILINE)
"""The beginning of a diff, or of a hunk."""
LINE_CHARACTERS = 300
"""Characters of a line in which a name, or words that stand for omitted lines, are looked for."""
DOTS = r"(?:\.\.\.|\u2026)"
LEFT_OUT = re.compile(
    rf"^\s*{DOTS}\s*(?:\(?\w|$)"
    rf"|^\s*(?:#|//|/\*|<!--)\W*(?:{DOTS}|(?:(?:keep|all|the) )*(?:rest|remaining|existing|everything else)\b"
    r".*\b(?:code|file|functions?|class(?:es)?|methods?|program|imports?|unchanged|same|before)\b)",
    re.IGNORECASE,
)
"""A line that stands for omitted ones."""
OPEN = re.compile(r"^(<{5,})[ \t]*SEARCH\b:?(.*)$")
MARKER = re.compile(r"^(?:(<{5,})[ \t]*SEARCH\b.*|(={5,})|(>{5,})[ \t]*REPLACE\b.*)$")


class Fence(NamedTuple):
    """A fenced block of an answer."""

    line: int
    """Of its opening, from 1."""
    label: str
    """The last line before it that is not blank, outside of any other fence, and its opening."""
    body: tuple[str, ...]


class Block(NamedTuple):
    """Lines to search, and their replacement."""

    name: str
    search: tuple[str, ...]
    replace: tuple[str, ...]


def changed(text: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The whole new text of each file that an answer in any of the formats changes, by name.

    Raises:
        EditFailed: there is no such edit in it, it does not apply to one place only, it touches another file, it
            leaves lines out, or it changes nothing. The reason has enough for a model to repair the answer.
    """
    answer = _unix(text)
    plain = {name: _unix(before) for name, before in files.items()}
    is_blocks = any(OPEN.match(line) for line in answer.split("\n"))
    read = _by_blocks if is_blocks else _by_diff if DIFF.search(answer) else _by_whole_files
    after = dict[str, str]()
    for name, made in read(answer, plain, editable).items():
        is_windows = name in files and plain[name] != files[name]
        made = _unix(made).replace("\n", "\r\n") if is_windows else made
        if files.get(name) != made:
            after[name] = made
    if not after:
        raise EditFailed("the edit changes nothing: the files are the same after it")
    return after


def _unix(text: str) -> str:
    """A text of which every line ends as on Windows, with the ends of Unix; any other as it is."""
    return text.replace("\r\n", "\n") if text.count("\r\n") == text.count("\n") else text


def _by_blocks(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The texts of the files that the blocks name, after all of them; each has to match exactly once."""
    every = _blocks(answer, editable)
    texts: dict[str, str] = {}
    for number, block in enumerate(every, 1):
        where = f"block {number} of {len(every)} ({block.name})"
        before = texts.get(block.name, files.get(block.name))
        _check_complete(block.replace, (before or "").split("\n"), where)
        texts[block.name] = _applied(before, block, where)
    return texts


def _blocks(answer: str, editable: Sequence[str]) -> list[Block]:
    """The blocks of an answer; EditFailed where one is broken or names no editable file."""
    every, above = list[Block](), ""
    lines = iter(answer.split("\n"))
    for line in lines:
        if opened := OPEN.match(line):
            where, length = f"block {len(every) + 1}", len(opened[1])
            name = _file(f"{above} {opened[2]}", editable, where, every[-1].name if every else "")
            search = _until("=" * length, lines, length, where)
            every.append(Block(name, search, _until(">" * length, lines, length, where)))
            above = ""
        elif line.strip():
            # A fence may be around the block.
            above = f"{above[:LINE_CHARACTERS]} {line}" if FENCE.match(line) else line
    return every


def _until(signs: str, lines: Iterator[str], length: int, where: str) -> tuple[str, ...]:
    """The lines before the marker of these signs; another marker of this length may not come before it."""
    part = list[str]()
    for line in lines:
        marker = MARKER.match(line.rstrip())
        if marker and signs in marker.groups():
            return tuple(part)
        if marker and any(other and len(other) == length for other in marker.groups()):
            raise EditFailed(
                f"{where} has a line `{line.rstrip()[:40]}` where `{signs}` belongs: write SEARCH, `=======` and "
                "REPLACE once each, and make all markers longer if its text holds such a line"
            )
        part.append(line)
    raise EditFailed(f"{where} has no end: no line `{signs}` before the end of the answer")


def _applied(before: str | None, block: Block, where: str) -> str:
    if not any(block.search) and not before:
        return "".join(f"{line}\n" for line in block.replace)
    if not block.search:
        raise EditFailed(f"{where}: SEARCH is empty, which makes a new file, and {block.name} is there already")
    if before is None:
        raise EditFailed(f"{where}: there is no file {block.name} yet; an empty SEARCH makes it")
    lines, bare = before.removesuffix("\n").split("\n"), [line.rstrip() for line in block.search]
    stripped = [line.rstrip() for line in lines]
    places = [at for at in range(len(lines)) if stripped[at : at + len(bare)] == bare]
    if not places:
        raise EditFailed(f"{where}: SEARCH is not in the file; {_what_lacks(before, block.search)}")
    if len(places) > 1:
        raise EditFailed(
            f"{where}: SEARCH is in the file {len(places)} times (first in lines {places[0] + 1} and {places[1] + 1}); "
            "add lines around it until it is there once"
        )
    own = dict(zip(bare, lines[places[0] :], strict=False))  # of lines that stay, the file's own ends stay
    lines[places[0] : places[0] + len(bare)] = [own.get(line.rstrip(), line) for line in block.replace]
    return "\n".join(lines) + "\n" * (before.endswith("\n") and bool(lines))


def _by_diff(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The texts after the diff."""
    lines = _diff(answer)
    added = [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++ ")]
    _check_complete(added, (line for text in files.values() for line in text.split("\n")), "the diff")
    return patches.patched_by_text(files, "".join(f"{_prefixed(line, editable)}\n" for line in lines), editable)


def _prefixed(line: str, editable: Sequence[str]) -> str:
    """The line of a head, `--- lib/net.py`, with the letter that git takes away; any other as it is."""
    sign, name = line[:4], line[4:].partition("\t")[0].strip()
    return f"{sign}{'a' if sign == '--- ' else 'b'}/{name}" if sign in ("--- ", "+++ ") and name in editable else line


def _diff(answer: str) -> list[str]:
    """The lines of the diff in an answer: those in fences, or else all; git leaves out what is before a head."""
    fenced = [_trimmed(fence.body) for fence in _fences(answer) if DIFF.search("\n".join(fence.body))]
    # A mailed patch's signature begins so.
    plain = _trimmed([*takewhile(lambda line: line != "-- ", answer.split("\n"))])
    return [line for body in fenced for line in body] or plain


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Lines without the empty ones at the end, which git would take for lines of the last hunk."""
    count = max((at for at, line in enumerate(lines, 1) if line), default=0)
    return [*lines[:count]]


def _by_whole_files(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The files that the answer writes out; EditFailed where a file is not editable or not clear, or not complete."""
    texts: dict[str, str] = {}
    for fence in _fences(answer):
        where = f"the fenced block in line {fence.line} of the answer"
        name = _file(fence.label, editable, where)
        if name in texts:
            raise EditFailed(
                f"{where} is a second one for {name}: write one, with all of its lines; if the file holds a fence "
                "itself, make the outer one longer"
            )
        if not any(line.strip() for line in fence.body):
            raise EditFailed(f"{where} is empty: write every line of {name}")
        _check_complete(fence.body, files.get(name, "").split("\n"), name)
        texts[name] = "\n".join(fence.body) + "\n"
    if not texts:
        raise EditFailed("the answer holds no edit: no block `<<<<<<< SEARCH`, no unified diff and no fenced file")
    return texts


def _fences(answer: str) -> list[Fence]:
    """The fenced blocks of an answer; EditFailed where the last one is not closed."""
    blocks: list[Fence] = []
    above, opened, body = "", None, list[str]()
    for number, line in enumerate(answer.split("\n"), 1):
        match = FENCE.match(line.rstrip())
        if opened is None and match:
            opened, body = (number, match[1], match[2].strip()), []
        elif opened is None:
            above = line if line.strip() else above
        elif match and not match[2].strip() and match[1].startswith(opened[1]):
            blocks.append(Fence(opened[0], f"{above} {opened[2]}", tuple(body)))
            above, opened = "", None
        else:
            body.append(line)
    if opened is not None:
        raise EditFailed(
            f"the fence opened in line {opened[0]} of the answer is never closed: the answer is cut off. "
            "Write all of it, and a fence longer than any inside"
        )
    return blocks


def _file(label: str, editable: Sequence[str], where: str, before: str = "") -> str:
    """The editable file that a label names, or else the one `before`, or the only one there is."""
    label = label[:LINE_CHARACTERS]
    spoken = {name.removeprefix("./") for name in FILE.findall(label)}
    word = r"(?<![\w./-]){}(?![\w/-]|\.\w)"
    own = {name for name in editable if name in spoken or re.search(word.format(re.escape(name)), label)}
    meant = own or spoken or ({before} if before else {*editable})
    if len(meant) != 1 or meant == spoken - own:
        said = capped(", ".join(sorted(spoken | own)), 100) or "no file"
        raise EditFailed(f"{where} names {said}: put the name of an editable file ({', '.join(editable)}) before it")
    return meant.pop()


def _check_complete(lines: Sequence[str], known: Iterable[str], where: str) -> None:
    """Refuse new lines of which one stands for omitted ones and was not in the file (`known`) before."""
    before = {line.strip() for line in known}
    for line in lines:
        if LEFT_OUT.match(line[:LINE_CHARACTERS]) and line.strip() not in before:
            raise EditFailed(
                f"{where}: {capped(line.strip(), 100)!r} stands for lines that are left out; "
                "nothing is filled in: write every line"
            )


def _what_lacks(text: str, wanted: Sequence[str]) -> str:
    """For a reason: the first line that a file does not have."""
    lines = set(text.split("\n"))
    lacking = next((line for line in wanted if line.strip() and line not in lines), "")
    return f"it has no line {capped(lacking, 100)!r}" if lacking else "its lines are there, but not in a row"
