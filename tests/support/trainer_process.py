"""A trainer as the engine starts it: its config.json, a copy of the program in a workspace, and what it reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from environments.judges import Exam
from environments.judges.control import Control
from environments.score import Score
from tasks.store.workspace import trainer_files
from tests.support.act_programs import PipeCandidate


def config(out: Path, id: str, seed: int = 1, steps: int = 0, **more: Any) -> dict[str, Any]:
    """A config.json as the engine writes it; a budget of steps is the one that binds, however slow the machine."""
    problem = {"id": id, "kwargs": more.pop("kwargs", {}), "max_episode_steps": None}
    seconds = 3600.0 if steps else 60.0
    common: dict[str, Any] = {"params": {}, "budget_seconds": seconds, "budget_steps": steps, "device": "cpu"}
    common |= {"seed": seed, "out": str(out), "resume": None, "init": None, "problem": problem}
    return common | more


def program(trainer: ModuleType, workspace: Path, settings: dict[str, Any], *arguments: str) -> subprocess.Popen[bytes]:
    """Start a copy of the program in its workspace, as the engine does."""
    lay(trainer, workspace, settings)
    return subprocess.Popen(
        [sys.executable, "train.py", *arguments],
        cwd=workspace,
        env={"TMPDIR": str(workspace), **os.environ},  # one that is killed leaves its scratch folder
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def lay(trainer: ModuleType, workspace: Path, settings: dict[str, Any]) -> None:
    for source, name in trainer_files(Path(str(trainer.__file__)).stem):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_bytes(source.read_bytes())
    (workspace / "config.json").write_text(json.dumps(settings))


def judged(trainer: ModuleType, workspace: Path, out: Path, id: str, **fields: Any) -> Score:
    """What the control judge says of the policy in `out`, played by the trainer's own program."""
    lay(trainer, workspace, {"out": str(out)})
    with PipeCandidate([sys.executable, "train.py", "act"], workspace) as candidate:
        return Control(id=id, **fields).score(candidate, Exam(7))


def progress(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]
