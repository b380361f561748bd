"""The formats in which a language model may write an edit: blocks, diffs, and whole files.

An edit applies whole or not at all, and only where its place is certain: a model can repair a refused answer, but an
edit in the wrong place goes unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from tasks.editing.patches import is_place
from tasks.formats import diff, search_replace
from tasks.formats._answer import DECORATION, Fence, NoEdit, check_complete, fences, named

Form = Literal["search_replace", "whole_file", "diff", "any"]
__all__ = ["Form", "NoEdit", "changed"]

LANGUAGES = ("", "py", "python", "python3")
"""Of a fence without a name that may be a Python file; others are commands to be run, and the like."""


def changed(text: str, files: Mapping[str, str], editable: Sequence[str], form: Form) -> dict[str, str]:
    """The whole new text of each file that an answer changes, by name; `any` recognises the format.

    Raises:
        NoEdit: there is no such edit in it, it does not apply to one place only, it touches another file, it leaves
            lines out, or it changes nothing.
    """
    places = [name for name in editable if is_place(name)]
    if not places:
        raise NoEdit(f"no file may be changed{f': {editable[0]!r} is no place for one' if editable else ''}")
    answer = _unix(text)
    plain = {name: _unix(before) for name, before in files.items()}
    readers = {"search_replace": search_replace.read, "whole_file": whole_files, "diff": diff.read}
    read = readers[form if form != "any" else _form(answer)]
    after = dict[str, str]()
    for name, made in read(answer, plain, places).items():
        if "\0" in made or made.encode(errors="replace").decode() != made:
            raise NoEdit(f"{name} would not be a text: it would hold a NUL or half a character")
        is_windows = name in files and plain[name] != files[name]
        made = _unix(made).replace("\n", "\r\n") if is_windows else made
        if files.get(name) != made:
            after[name] = made
    if not after:
        raise NoEdit("the edit changes nothing: the files are the same after it")
    return after


def _unix(text: str) -> str:
    """A text of which every line ends as on Windows, with the ends of Unix; any other as it is."""
    return text.replace("\r\n", "\n") if text.count("\r\n") == text.count("\n") else text


def _form(answer: str) -> str:
    lines = answer.split("\n")
    if any(search_replace.OPEN.match(line) for line in lines):
        return "search_replace"
    if diff.is_diff(lines):
        return "diff"
    if fences(answer):
        return "whole_file"
    raise NoEdit("the answer holds no edit: neither a block `<<<<<<< SEARCH`, nor a unified diff, nor a fenced file")


def whole_files(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The files that the answer writes out; NoEdit where a file is not editable or not clear, or not complete."""
    texts: dict[str, str] = {}
    for fence in fences(answer):
        name = _name(fence, editable)
        if name is None:
            continue
        if name in texts:
            raise NoEdit(
                f"a second fenced block for {name} begins in line {fence.line} of the answer: write one, with all of "
                "its lines; if the file holds a fence itself, make the outer one longer"
            )
        texts[name] = _text(fence, name, files.get(name))
    if not texts:
        raise NoEdit("no fenced block found: write the whole new file between ```python and ```")
    return texts


def _name(fence: Fence, editable: Sequence[str]) -> str | None:
    """Which file a block is; None where it is none, such as a command to be run."""
    if name := named(fence.info, editable):
        return name
    language = re.split(r"[\s{:]", fence.info, maxsplit=1)[0].lower()
    is_program = language in LANGUAGES or not all(name.endswith(".py") for name in editable)
    if not is_program and fence.above.strip(DECORATION) not in editable:
        return None
    if name := named(fence.above, editable):
        return name
    if len(editable) == 1:
        return editable[0]
    raise NoEdit(
        f"the fenced block in line {fence.line} of the answer names no file: put the name of an editable file "
        f"({', '.join(editable)}) alone on the line before it"
    )


def _text(fence: Fence, name: str, before: str | None) -> str:
    if not any(line.strip() for line in fence.body):
        raise NoEdit(f"the fenced block of {name} is empty: write every line of the file")
    check_complete(fence.body, (before or "").split("\n"), name)
    return "\n".join(fence.body) + "\n"
