"""What the importers of Stable-Baselines3's programs share: how they run, and how their models are judged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.importing import Imported, Term, _runner
from tasks.importing._original import REPOSITORY
from tasks.importing._parameters import guesses, is_number
from tasks.sandbox.interpreter import interpreter_of

BUDGET_SECONDS = 1200.0
"""No such program states how long it may take."""
METRIC, EPISODES = "return", 100
ON_POLICY = {"learning_rate": 3e-4, "n_steps": 2048, "gamma": 0.99, "gae_lambda": 0.95}
OFF_POLICY = {"learning_rate": 3e-4, "batch_size": 256, "gamma": 0.99, "tau": 0.005}
DEFAULTS: dict[str, dict[str, float]] = {
    "PPO": {**ON_POLICY, "batch_size": 64, "n_epochs": 10, "clip_range": 0.2},
    "RecurrentPPO": {**ON_POLICY, "n_steps": 128, "batch_size": 128, "n_epochs": 10, "clip_range": 0.2},
    "A2C": {**ON_POLICY, "learning_rate": 7e-4, "n_steps": 5, "gae_lambda": 1.0},
    "TRPO": {**ON_POLICY, "learning_rate": 1e-3, "batch_size": 128},
    "SAC": OFF_POLICY,
    "TQC": OFF_POLICY,
    "TD3": {**OFF_POLICY, "learning_rate": 1e-3},
    "DDPG": {**OFF_POLICY, "learning_rate": 1e-3},
    "CrossQ": {"learning_rate": 1e-3, "batch_size": 256, "gamma": 0.99},
    "DQN": {"learning_rate": 1e-4, "batch_size": 32, "gamma": 0.99, "exploration_fraction": 0.1},
    "QRDQN": {"learning_rate": 5e-5, "batch_size": 32, "gamma": 0.99},
    "ARS": {"learning_rate": 0.02},
}
"""The algorithms whose models the judge can play, with what their constructors take where a program says nothing."""
SEARCHED = {name for defaults in DEFAULTS.values() for name in defaults} | {
    "ent_coef", "vf_coef", "max_grad_norm", "train_freq", "gradient_steps", "target_update_interval",
    "exploration_final_eps", "learning_starts", "policy_delay", "target_kl", "use_sde", "sde_sample_freq",
}  # fmt: skip
"""Arguments of constructors that say how is learned."""
STEPS = "total_timesteps"
JUDGED = (
    "no score: the judge plays the model that is saved last outside callbacks, or else as it is when learning ends: "
    f"{EPISODES} episodes with seeds of its own, with the statistics of its VecNormalize"
)


def space(algorithm: str, stated: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Ranges around what the constructor gets, or takes by default; none around 0 and 1, which may be ends."""
    return guesses({
        name: value for name, value in {**DEFAULTS[algorithm], **stated}.items()
        if name in SEARCHED and (isinstance(value, bool) or is_number(value)) and value not in (0, 1)
    })  # fmt: skip


def environment(
    title: str, origin: str, edited: Sequence[str], files: Mapping[str, str | Path], *, program: Path,
    call: Mapping[str, Any], space: Mapping[str, Any], steps: int, problem: Mapping[str, Any], left: Iterable[Term],
) -> Imported:  # fmt: skip
    """The environment of a program.

    Args:
        edited: Files in `repository/`, the main one first.
        files: The original's, by place.
        program: Where it lies.
        call: What programs/sb3_call.py is told.
        steps: Of the budget; 0: the program's own.
        problem: Keys of [control].
    """
    python = _runner.python_of(program)
    control = {**problem, "episodes": EPISODES, "other_episodes": 0, "start_seconds": 180.0}
    if python and ":" in str(problem["id"]):  # a module that only the program's own environment may have
        own = interpreter_of(python)
        folders = [*own.prefixes[0].glob("lib/python3*/site-packages"), *(path.parent for path in own.editable)]
        control["packages"] = list(dict.fromkeys(map(str, folders)))
    return _runner.imported(
        title.replace(" ", "-"), origin, edited[0],
        f"It trains an agent with Stable-Baselines3; the judge plays the model that it saves in {problem['id']}.\n",
        title=title,
        program=program,
        metric=METRIC,
        how={
            "command": ["${interpreter}", "-m", "sb3_call"], "keeps_files": True, "says_ready": True,
            "defaults": {name: table["default"] for name, table in space.items()},
            "own": {STEPS: "budget_steps"} if steps else {},
            "variables": {"SB3_CALL": json.dumps(call), "SDL_VIDEODRIVER": "dummy", "WANDB_MODE": "disabled"},
        },
        keys={
            "direction": "maximize", "editable": [f"{REPOSITORY}/{file}" for file in edited],
            "budget_seconds": BUDGET_SECONDS, "budget_steps": steps or None,
            "startup_seconds": 120.0, "grace_seconds": 60.0, "space": space,
            "requires": None if python else {"stable_baselines3": "pip install stable-baselines3"},
        },
        originals=files,
        control=control,
        stand_ins=["sb3_call"],
        left=(
            *left,
            Term("what it prints and evaluates", JUDGED),
            Term("seed", "the seed of the run, whether the program takes one or not"),
            Term("no time limit in it", f"budget_seconds = {BUDGET_SECONDS:g}, a guess; learning ends then, and saves"),
        ),
    )  # fmt: skip
