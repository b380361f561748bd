"""The forms in which a language model may write an edit. One file each.

What comes of an answer is whole new texts of the files that change, or the reason why there is none. Nothing is
changed by halves, and nothing is put where it is not known to belong: a model that is told why can repair its answer,
and nobody can repair a change that went unnoticed into the wrong place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tasks.formats import diff, search_replace, whole_file
from tasks.formats._answer import NoEdit, fences, is_place, not_editable

Form = Literal["search_replace", "whole_file", "diff", "any"]
FORMS = {"search_replace": search_replace.read, "whole_file": whole_file.read, "diff": diff.read}

__all__ = ["FORMS", "Form", "NoEdit", "changed"]


def changed(text: str, files: Mapping[str, str], editable: Sequence[str], form: Form) -> dict[str, str]:
    """What an answer makes of the files: the whole new text of each that changes, by name.

    Args:
        text: The answer, with whatever is said around the edit.
        files: The texts of the editable files that there are.
        editable: The files that may be changed or added.
        form: How the answer is written; `any` goes by what is in it.

    Raises:
        NoEdit: there is no such edit in it, it does not apply to one place only, it touches another file, it leaves
            lines out, or it changes nothing. The reason says what, where, and which lines were likely meant.
    """
    places = [name for name in editable if is_place(name)]
    if not places:
        raise NoEdit(
            f"no file may be changed{'' if not editable else f': {editable[0]!r} is no place for one'}"
        )
    read = FORMS[form if form != "any" else _form(text)]
    found = {name: after for name, after in read(text, files, places).items() if files.get(name) != after}
    for name, after in found.items():
        _check(name, after, places)
    if not found:
        raise NoEdit("the edit changes nothing: the files are the same after it")
    return found


def _form(text: str) -> str:
    """Which form an answer has."""
    lines = text.split("\n")
    if any(search_replace.OPEN.match(line) for line in lines):
        return "search_replace"
    if diff.is_diff(lines):
        return "diff"
    if fences(text):
        return "whole_file"
    raise NoEdit(
        "the answer holds no edit: neither a block `<<<<<<< SEARCH`, nor a unified diff, nor a fenced file"
    )


def _check(name: str, after: str, editable: Sequence[str]) -> None:
    """The last word on what an answer makes, whatever form it came in."""
    if name not in editable:
        raise NoEdit(not_editable(name, editable))
    if "\0" in after or after.encode(errors="replace").decode() != after:
        raise NoEdit(f"{name} would not be a text: it would hold a NUL or half a character")
