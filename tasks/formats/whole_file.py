"""Whole files: one fenced block for each that changes, with all of its lines.

    train.py
    ```python
    ...every line of the file...
    ```

The name stands on the line before, behind the opening fence, or, where one file is editable, nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tasks.formats._answer import DECORATION, Fence, NoEdit, check_complete, fences, named

LANGUAGES = ("", "py", "python", "python3")
"""Of a fence without a name that may be a Python file; others are commands to be run, and the like."""


def read(answer: str, files: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """The files that the answer writes out.

    Raises:
        NoEdit: a fence is not closed, its file is not editable or not clear, or lines were left out.
    """
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
