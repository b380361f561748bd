"""Conformance of trainers: each is a program, with parts beside it; those of Gymnasium train, refuse and end alike.

That they import nothing of ours, `lint-imports` checks.
"""

from __future__ import annotations

import importlib
import re
import signal
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import _program
from environments import plugins
from tasks.store.workspace import TRAINERS, trainer_files
from tests.support import trainer_process
from tests.support.trainer_process import config, progress, train

SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"num_steps": 16},
    "sac": {"random_steps": 50, "batch": 8, "learning_rate": 0.1, "hidden": 16},
}
BOX = gym.spaces.Box(-1, 1, (1,), np.float32)


@pytest.fixture(params=SMALL)
def trainer(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"tasks.trainers.{request.param}")


def small(trainer: ModuleType) -> dict[str, Any]:
    return SMALL[trainer.__name__.rpartition(".")[2]]


def test_a_trainer_finds_its_parts_in_its_workspace_by_the_names_that_they_have_here() -> None:
    files = {name: [called for _, called in trainer_files(name)] for name in plugins.names(TRAINERS)}
    assert [files[name] for name in ("ppo", "sac", "grpo")] == [["train.py", "_program.py"]] * 3
    assert files["command"] == ["train.py"]
    parts = {called.partition("/")[0] for called in files["prime_rl"]}
    assert parts == {"train.py", "_program.py", "prime_rl_parts"}


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(3, start=5),
        gym.spaces.Box(np.full((2, 2), -0.1), np.full((2, 2), 0.3), dtype=np.float64),
        gym.spaces.Box(-1, np.inf, (), np.float32),
    ],
)
def test_actions_arrive_inside_the_action_space_or_it_is_refused(
    trainer: ModuleType, tmp_path: Path, space: gym.Space[Any]
) -> None:
    settings = config(tmp_path, "Ticks-v0", steps=256, params=small(trainer), kwargs={"action_space": space})
    if small(trainer) is SMALL["sac"] and (isinstance(space, gym.spaces.Discrete) or not space.shape):
        with pytest.raises(_program.Refused, match="SAC needs a Box of floats with finite bounds"):
            train(trainer, settings)
    else:
        train(trainer, settings)  # Ticks itself refuses an action that is not in its space


def test_observations_that_it_cannot_see_are_refused_with_the_reason(trainer: ModuleType, tmp_path: Path) -> None:
    labelled = gym.spaces.Dict({"count": gym.spaces.Box(0, 9)})
    kwargs = {"observation_space": labelled, "action_space": BOX}
    with pytest.raises(_program.Refused, match=re.escape("observations are Dict")):
        train(trainer, config(tmp_path, "Ticks-v0", kwargs=kwargs))


def test_the_same_seed_gives_the_same_policy_and_another_seed_another(trainer: ModuleType, tmp_path: Path) -> None:
    policies, id = [], "CartPole-v1" if small(trainer) is SMALL["ppo"] else "Pendulum-v1"
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        train(trainer, config(tmp_path / name, id, seed=seed, steps=512, params=small(trainer)))
        policies.append((tmp_path / name / "policy.pt").read_bytes())
    assert policies[0] == policies[1] != policies[2]
    lines = progress(tmp_path / "one")
    assert lines[0] == {"ready": True} and lines[-1]["step"] == lines[-1]["step_target"] == 512
    assert -2000 < lines[-1]["metrics"]["return/mean"] < 500


def test_sigterm_saves_and_exits_cleanly(trainer: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = config(out, "Pendulum-v1", budget_seconds=600.0)
    started = trainer_process.program(trainer, tmp_path, settings)
    while started.poll() is None and not ((out / "progress.jsonl").exists() and len(progress(out)) > 1):
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    _, errors = started.communicate(timeout=20)
    assert started.returncode == 0, errors.decode()
    assert (out / "policy.pt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "id", "steps", "good", "most"),
    [
        ("ppo", "CartPole-v1", 20_000, {"learning_rate": 2e-3, "epochs": 10, "minibatches": 8}, 400),
        ("sac", "Pendulum-v1", 3000, {"learning_rate": 3e-3, "tau": 0.02, "batch": 64, "random_steps": 500, "hidden": 32},
         -700),  # a random policy has -1200, sd 300 over episodes
    ],
)  # fmt: skip
def test_a_good_configuration_masters_its_problem_as_judged(
    tmp_path: Path, name: str, id: str, steps: int, good: dict[str, Any], most: float
) -> None:
    trainer = importlib.import_module(f"tasks.trainers.{name}")
    train(trainer, config(tmp_path / "out", id, steps=steps, params=good))
    score, again = (
        trainer_process.judged(trainer, tmp_path, tmp_path / "out", id, episodes=8, other_episodes=4) for _ in range(2)
    )
    assert score.value is not None and score.value > most
    assert (again.units, again.also) == (score.units, score.also)
