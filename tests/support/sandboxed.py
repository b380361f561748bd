"""Python code run at a level of the sandbox, and what it answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from environments.limits import Limits
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.program import Program


def answers(place: Path, level: Level, code: str, *, view: VisiblePaths) -> Any:
    """What Python code prints as JSON in its last line, run at a level in `place`/workspace, which is all that it is
    given beside `place`/out and the view."""
    workspace, out = place / "workspace", place / "out"
    for folder in (workspace, out):
        folder.mkdir(exist_ok=True)
    confinement.give(out, level)
    (workspace / "code.py").write_text(code)
    given = replace(view, readable=(workspace, *view.readable), writable=(out, *view.writable))
    with Program(
        ["python", "-I", "code.py", str(out)], cwd=workspace, log=place / "log", marker="test/sandbox", level=level,
        view=given, limits=Limits(),
    ) as program:  # fmt: skip
        while (status := program.poll(0.02)) is None:
            pass
        assert status == 0, program.tail()
    return json.loads((place / "log").read_text().splitlines()[-1])
