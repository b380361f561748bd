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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from tasks.formats import _hunks, _matching
from tasks.formats._answer import GitText, NoEdit, complete, not_editable
from tasks.formats._hunks import FileDiff, Hunk, is_diff
from tasks.formats._matching import Replacement
from tasks.formats.search_replace import nearest, put, several

__all__ = ["is_diff", "read"]

READINGS = (_matching.exact, _matching.trailing, _matching.gapped, _matching.shifted)
"""The ways to find a hunk's place: the first with any match decides."""
FUNCTION = re.compile(r"[A-Za-z_$]")
"""The beginning of a line that git repeats in the heading of the hunk below."""


def read(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The texts of the files that the diff is about, after all of its hunks.

    Raises:
        NoEdit: it is no diff, is about another file, or a hunk is not at one place of its file.
    """
    found: dict[str, list[FileDiff]] = {}
    for each in _hunks.read(answer):
        found.setdefault(_name(each, editable), []).append(each)
    return {name: _applied(name, parts, files.get(name)) for name, parts in found.items()}


def _name(each: FileDiff, editable: Sequence[str]) -> str:
    """The one file that a part of a diff is about."""
    if each.new is None:
        raise NoEdit(f"the diff removes {each.old!r}: an edit may change and add files, nothing else")
    if each.new == "":
        if len(editable) == 1:
            return editable[0]
        raise NoEdit(f"the diff names no file: write `--- a/NAME` and `+++ b/NAME`; editable: {', '.join(editable)}")
    new = _without_prefix(each.new, "b/", editable)
    old = new if each.old is None else _without_prefix(each.old, "a/", editable)
    for name in (new, old):
        if name not in editable:
            raise NoEdit(not_editable(name, editable))
    if new != old:
        raise NoEdit(f"the diff makes {old} into {new}: name one file, twice (--- a/{new}, +++ b/{new})")
    return new


def _without_prefix(name: str, prefix: str, editable: Sequence[str]) -> str:
    return name if name in editable else name.removeprefix(prefix).removeprefix("./")


def _applied(name: str, parts: Sequence[FileDiff], before: str | None) -> str:
    hunks = [hunk for part in parts for hunk in part.hunks]
    if any(part.old is None for part in parts) and before is not None:
        raise NoEdit(f"the diff adds {name}, which is there already: change it with `--- a/{name}`")
    for hunk in hunks:
        new = [line.text for line in hunk.change if line.kind == "+"]
        complete(new, (before or "").split("\n"), _where(hunk, name))
    if not before and not any(_matching.old(hunk.change) for hunk in hunks):
        lines = tuple(line.text for hunk in hunks for line in hunk.change)
        return str(GitText(lines, all(hunk.new_ended for hunk in hunks)))
    if before is None:
        raise NoEdit(f"there is no file {name} yet: add it with `--- /dev/null`")
    text = GitText.of(before)
    found = [(hunk, _found(text, hunk, _where(hunk, name))) for hunk in hunks]
    # One hunk that is not where it says shows that the numbers are not to be believed.
    right = all(len(places) > 1 or _is_stated(places[0], hunk) for hunk, places in found)
    places = [_one(text, hunk, each, right, _where(hunk, name)) for hunk, each in found]
    both = sorted(zip(places, hunks, strict=True), key=lambda pair: (pair[0].start, pair[0].end))
    for (first, _), (second, hunk) in pairwise(both):
        if second.start < first.end:
            raise NoEdit(f"{_where(hunk, name)} is about the same lines as another one: write them as one")
    # A hunk that reaches the end of the text may say whether it has a newline there.
    place, hunk = max(both, key=lambda pair: pair[0].end)
    speaks = place.end == len(text.lines) and hunk.old_ended != hunk.new_ended
    return str(replace(put(text, places), ended=hunk.new_ended if speaks else text.ended))


def _where(hunk: Hunk, name: str) -> str:
    return f"the hunk in line {hunk.line} of the answer ({name})"


def _found(text: GitText, hunk: Hunk, where: str) -> list[Replacement]:
    wanted = _matching.old(hunk.change)
    if not any(line.strip() for line in wanted) and len(text.lines) > len(wanted):
        raise NoEdit(f"{where} has no line of the file to be found by: add some before and after the change")
    for reading in READINGS:
        if places := reading(text, hunk.change):
            return places
    raise NoEdit(f"{where}: its old lines are not in the file{nearest(text, wanted)}")


def _is_stated(place: Replacement, hunk: Hunk) -> bool:
    """Whether a place is where the hunk says; if a line is missing, it may be the first."""
    return hunk.start is not None and 0 <= place.start + 1 - hunk.start <= hunk.lacks


def _one(text: GitText, hunk: Hunk, places: list[Replacement], believed: bool, where: str) -> Replacement:
    """The one place of a hunk: of several, that which its number and the function that it names tell."""
    left = places
    if len(places) > 1:
        left = [place for place in places if believed and _is_stated(place, hunk)]
        if hunk.heading:
            left = [place for place in left or places if _heading(text, place.start).startswith(hunk.heading)]
    if len(left) == 1:
        return left[0]
    raise NoEdit(f"{where}: its old lines are in the file {several(places)}; add lines around the change")


def _heading(text: GitText, start: int) -> str:
    return next((line.strip() for line in reversed(text.lines[:start]) if FUNCTION.match(line)), "")
