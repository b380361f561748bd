"""A trainer as the engine starts it: its config.json, a copy of the program in a workspace, and what it reports; and the
problem `Ticks-v0`, of which everything is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import _program
from environments.judges import Exam
from environments.judges.control import Control
from environments.score import Score
from tasks.store.workspace import trainer_files
from tests.support.act_programs import PipeCandidate


class Ticks(gym.Env[NDArray[np.float64], Any]):
    """Counts: it starts at 50, then shows and pays 1, 2, ... and ends at `length`, terminated or cut off.

    The start is far from any count, so that a value taken from the wrong side of a reset stands out. It refuses an
    action that is not in its space.
    """

    def __init__(
        self, length: int = 2, terminates: bool = True, action_space: gym.Space[Any] | None = None,
        observation_space: gym.Space[Any] | None = None, at_step: Callable[[int], object] = lambda count: None,
    ) -> None:  # fmt: skip
        self.length, self.terminates, self.at_step = length, terminates, at_step
        self.observation_space = observation_space or gym.spaces.Box(-100, 100, (1,), np.float64)
        self.action_space = action_space or gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.count = 0
        return np.array([50.0]), {}

    def step(self, action: Any) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action)), f"{action!r} is not in {self.action_space}"
        self.count += 1
        self.at_step(self.count)
        over = self.count == self.length
        return np.array([float(self.count)]), float(self.count), over and self.terminates, over, {}


gym.register("Ticks-v0", entry_point=Ticks, disable_env_checker=True)  # type: ignore[arg-type]


def config(out: Path, id: str, seed: int = 1, steps: int = 0, **more: Any) -> dict[str, Any]:
    """A config.json as the engine writes it; a budget of steps is the one that binds, however slow the machine."""
    problem = {"id": id, "kwargs": more.pop("kwargs", {}), "max_episode_steps": None}
    seconds = 3600.0 if steps else 60.0
    common: dict[str, Any] = {"params": {}, "budget_seconds": seconds, "budget_steps": steps, "device": "cpu"}
    common |= {"seed": seed, "out": str(out), "resume": None, "init": None, "problem": problem}
    return common | more


def train(trainer: Any, settings: dict[str, Any]) -> Any:
    """Train in this process, and read the checkpoint back: an agent of PPO, or a policy of SAC."""
    _program.training(settings, trainer.train)
    return _program.load(Path(settings["out"]), getattr(trainer, "Agent", None) or trainer.Policy, trainer.Shape)


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
