"""The formats in which a language model may write an edit. One file each.

An answer gives the whole new texts of the files that change, or the reason of a refusal. An edit applies whole or not
at all, and only where its place is certain: a model can repair a refused answer, but an edit in the wrong place goes
unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tasks.editing.patches import is_place
from tasks.formats import diff, search_replace, whole_file
from tasks.formats._answer import NoEdit, fences

Form = Literal["search_replace", "whole_file", "diff", "any"]
FORMS = {"search_replace": search_replace.read, "whole_file": whole_file.read, "diff": diff.read}

__all__ = ["FORMS", "Form", "NoEdit", "changed"]


def changed(text: str, files: Mapping[str, str], editable: Sequence[str], form: Form) -> dict[str, str]:
    """The whole new text of each file that an answer changes, by name.

    Args:
        text: The answer, prose around the edit included.
        files: The texts of the editable files that there are.
        editable: The files that may be changed or added.
        form: The format; `any` recognises it.

    Raises:
        NoEdit: there is no such edit in it, it does not apply to one place only, it touches another file, it leaves
            lines out, or it changes nothing. The reason says what, where, and which lines were likely meant.
    """
    places = [name for name in editable if is_place(name)]
    if not places:
        raise NoEdit(f"no file may be changed{f': {editable[0]!r} is no place for one' if editable else ''}")
    answer = _unix(text)
    plain = {name: _unix(before) for name, before in files.items()}
    read = FORMS[form if form != "any" else _form(answer)]
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
