"""Unified diffs, as language models write them.

git reads and applies them (tasks/editing/patches.py). Here the diff is cut out of the answer, and refused if it was cut
off or leaves lines out. Models are bad at numbers and good at text: the numbers may be wrong or missing (`@@ ... @@`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile

from tasks.editing import patches
from tasks.editing.patches import EditFailed, NotThere
from tasks.formats._answer import NoEdit, check_complete, fences, what_lacks
from tasks.system.redact import capped

NUMBERED = re.compile(r"^@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
LINE = re.compile(
    r"^(?:[ +\\@]|-(?!- $)|$|diff |index |Index: |(?:new|old|deleted) (?:file )?mode |(?:dis)?similarity |rename |copy "
    r"|GIT binary patch|Binary files )"
)
"""A line of a diff. `-- ` begins a mailed patch's signature."""
CHANGE = re.compile(r"[+-][^\s+-]")
"""A line of a hunk, and none of a list."""


def is_diff(lines: Sequence[str]) -> bool:
    """Whether an answer holds the beginning of a hunk or the names of a diff."""
    return any(line.startswith("@@") or _is_head(lines, at) for at, line in enumerate(lines))


def read(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The texts after the diff; NoEdit where it is about more than text, or a hunk is not at one place of its file."""
    lines = _diff(answer)
    added = [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++ ")]
    check_complete(added, (line for text in files.values() for line in text.split("\n")), "the diff")
    try:
        return patches.patched(files, "".join(f"{_prefixed(line, editable)}\n" for line in lines), editable)
    except NotThere as wrong:
        raise NoEdit(f"{wrong}; {what_lacks(files.get(wrong.name, ''), wrong.lines)}") from wrong
    except EditFailed as wrong:
        raise NoEdit(str(wrong)) from wrong


def _prefixed(line: str, editable: Sequence[str]) -> str:
    """The line of a head, `--- lib/net.py`, with the letter that git takes away; any other as it is."""
    sign, name = line[:4], line[4:].partition("\t")[0].strip()
    return f"{sign}{'a' if sign == '--- ' else 'b'}/{name}" if sign in ("--- ", "+++ ") and name in editable else line


def _is_head(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")


def _diff(answer: str) -> Sequence[str]:
    """The lines of the diff in an answer: those in fences, or else from its head to the first line of prose."""
    fenced = [_trimmed(fence.body) for fence in fences(answer) if is_diff(fence.body)]
    if fenced:
        return [line for body in fenced for line in body]
    lines = answer.split("\n")
    heads = (at for at, line in enumerate(lines) if line.startswith(("diff --git ", "@@")) or _is_head(lines, at))
    begin = next(heads, None)
    if begin is None:
        raise NoEdit("no hunk of a unified diff found: write `--- a/NAME`, `+++ b/NAME`, `@@ ... @@` and its lines")
    diff = _trimmed([*takewhile(LINE.match, lines[begin:])])
    behind = lines[begin + len(diff) :]
    if is_diff(behind) or any(CHANGE.match(line) for line in behind):
        raise NoEdit(f"the diff goes on behind {capped(behind[0], 80)!r}: put all of it between ```diff and ```")
    _check_end(diff)
    return diff


def _trimmed(lines: Sequence[str]) -> Sequence[str]:
    """Lines without the empty ones at the end, which git would take for lines of the last hunk."""
    count = max((at for at, line in enumerate(lines, 1) if line), default=0)
    return lines[:count]


def _check_end(diff: Sequence[str]) -> None:
    """Refuse a diff whose last hunk has fewer lines than its head says: half of a change may be a removal."""
    at = max((at for at, line in enumerate(diff) if line.startswith("@@")), default=0)
    if numbers := NUMBERED.match(diff[at]):
        lost = [
            int(number or 1) - sum(line[:1] in (" ", sign, "") for line in diff[at + 1 :])
            for number, sign in zip(numbers.groups(), "-+", strict=True)
        ]
        if min(lost) >= 0 and max(lost) > 0 and lost != [1, 1]:  # a blank line at the end is easily lost
            raise NoEdit(
                "the last hunk has fewer lines than its head says: it may be cut off. Put the diff between ```diff "
                "and ```, and write `@@ ... @@`"
            )
