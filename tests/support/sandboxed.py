"""Python code run at a level of the sandbox, and what it answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from environments.limits import Limits
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.program import SAID, Program


def run(
    place: Path, level: Level, code: str, *, view: VisiblePaths | None = None, limits: Limits | None = None
) -> tuple[str, str]:
    """Run Python code at a level, in `place`/workspace, which is all that it is given beside `place`/out; how it
    ended in words, and what it printed last."""
    workspace, out = place / "workspace", place / "out"
    for folder in (workspace, out):
        folder.mkdir(exist_ok=True)
    confinement.give(out, level)
    (workspace / "code.py").write_text(code)
    view = view or VisiblePaths((), ())
    given = replace(view, readable=(workspace, *view.readable), writable=(out, *view.writable))
    with Program(
        ["python", "-I", "code.py", str(out)], cwd=workspace, log=place / "log", marker="test/sandbox", level=level,
        view=given, limits=limits or Limits(),
    ) as program:  # fmt: skip
        while (status := program.poll(0.02)) is None:
            pass
        lines = [line.removeprefix(SAID) for line in program.tail().splitlines()]
        return program.describe(status), "\n".join(lines)


def answers(place: Path, level: Level, code: str, **more: Any) -> Any:
    """What the code prints as JSON in its last line."""
    ended, tail = run(place, level, code, **more)
    assert ended == "exited with status 0", tail
    return json.loads((place / "log").read_text().splitlines()[-1])
