"""Python code run at a level of the sandbox, and what it answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from environments.limits import Limits
from tasks.machine.slots import NOWHERE, Slot
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.program import Program


def answers(place: Path, level: Level, code: str, view: VisiblePaths | None = None, slot: Slot = NOWHERE) -> Any:
    """What Python code prints as JSON in its last line, run in `place`/workspace, which is all that it is given beside
    `place`/out, this view and a slot."""
    workspace, out = place / "workspace", place / "out"
    for folder in (workspace, out):
        folder.mkdir(parents=True, exist_ok=True)
    confinement.give(out, level)
    (workspace / "code.py").write_text(code)
    view = view or VisiblePaths((), ())
    given = replace(view, readable=(workspace, *view.readable), writable=(out, *view.writable))
    with Program(
        ["python", "-I", "code.py", str(out)], cwd=workspace, log=place / "log", marker="test/sandbox", level=level,
        view=given, limits=Limits(), slot=slot,
    ) as program:  # fmt: skip
        status = program.wait(60)
        assert status == 0, program.tail()
    return json.loads((place / "log").read_text().splitlines()[-1])
