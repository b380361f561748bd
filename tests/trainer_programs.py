"""A trainer as the engine starts it: its config.json, a copy of the program in a workspace, and what it reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def config(out: Path, id: str, seed: int = 1, steps: int = 0, **more: Any) -> dict[str, Any]:
    """A config.json as the engine writes it."""
    problem = {"id": id, "kwargs": more.pop("kwargs", {}), "max_episode_steps": None}
    common: dict[str, Any] = {"params": {}, "budget_seconds": 60.0, "budget_steps": steps, "device": "cpu"}
    common |= {"seed": seed, "out": str(out), "resume": None, "init": None, "problem": problem}
    return common | more


def program(
    trainer: ModuleType, workspace: Path, settings: dict[str, Any], *arguments: str
) -> subprocess.Popen[bytes]:
    """Start a copy of the program in its workspace, as the engine does."""
    workspace.mkdir(exist_ok=True)
    (workspace / "train.py").write_bytes(Path(str(trainer.__file__)).read_bytes())
    (workspace / "config.json").write_text(json.dumps(settings))
    return subprocess.Popen(
        [sys.executable, "train.py", *arguments],
        cwd=workspace,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def progress(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]
