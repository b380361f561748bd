"""Runs a Stable-Baselines3 program unchanged: `python -m sb3_call HOW PROGRAM ARGUMENTS`, of a file or a module.

Its model gets the seed of the run and the parameters that no option takes, learns for the steps of the budget, reports
the mean return of its training episodes, and is left for the judge with its normalisation. Where time is over, learning
ends, and the program goes on behind it.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import stable_baselines3
from autoresearch_rl.target.progress import emit_progress, emit_ready  # type: ignore[import-not-found]
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.utils import set_random_seed

HOW: dict[str, Any] = json.loads(sys.argv[1])
"""`class`: whose constructor gets the parameters; without it they are RL Zoo's, those in `schedules` to begin with."""
PARAMS: dict[str, Any] = json.loads(os.environ["AR_PARAMS_JSON"])
STEPS = PARAMS.pop("total_timesteps", 0)
SEED = int(os.environ["AR_SEED"]) % 2**31
MODEL = Path(os.environ["AR_MODEL_DIR"])
REPORT_SECONDS = 0.5
learner: Any = None
"""The model that learns now."""
is_over = False
saved, prepared = BaseAlgorithm.save, BaseAlgorithm._setup_learn


class Curve(BaseCallback):  # type: ignore[misc]
    """Reports progress, ends learning where the time is over, and leaves the model when it has ended."""

    def _on_training_start(self) -> None:
        global learner
        learner, self.reported = self.model, 0.0
        emit_ready()

    def _on_step(self) -> bool:
        if time.monotonic() > self.reported + REPORT_SECONDS:
            self.report()
        return not is_over

    def _on_training_end(self) -> None:
        global learner
        learner = None
        self.report()
        leave(self.model)

    def report(self) -> None:
        self.reported = time.monotonic()
        if returns := [episode["r"] for episode in self.model.ep_info_buffer or ()]:
            metrics = {"return": float(sum(returns) / len(returns))}
            emit_progress(step=self.model.num_timesteps, step_target=0, metrics=metrics)


def leave(model: Any) -> None:
    """Leave a model for the judge, with the class that loads it and the statistics of VecNormalize; as a whole."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    saved(model, MODEL / "half.zip")
    (MODEL / "half.zip").replace(MODEL / "model.zip")
    kind = next(one for one in type(model).__mro__ if one.__module__.startswith(("stable_baselines3", "sb3_contrib")))
    (MODEL / "model.json").write_text(json.dumps([kind.__module__, kind.__name__]))
    if normalize := model.get_vec_normalize_env():
        normalize.save(MODEL / "vecnormalize.pkl")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def save(self: Any, *args: Any, **options: Any) -> None:
    saved(self, *args, **options)
    if not learner:  # what callbacks save on the way is not what the program chooses at its end
        leave(self)


def setup_learn(self: Any, total_timesteps: int, *args: Any, **options: Any) -> tuple[int, Any]:
    total, callback = prepared(self, STEPS or total_timesteps, *args, **options)
    curve = Curve()
    curve.init_callback(self)
    both = CallbackList([callback, curve])
    both.model = self
    return total, both


def give_keywords(name: str) -> None:
    """Have the constructor of an algorithm take the parameters, whatever the program gives it."""
    kind: Any = getattr(stable_baselines3, name, None) or getattr(importlib.import_module("sb3_contrib"), name)
    begin = kind.__init__

    @functools.wraps(begin)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **{**options, **PARAMS})

    kind.__init__ = __init__


def end(*_: object) -> None:
    """Leave the model at once: where environments have processes of their own, the signal ends these too."""
    global is_over
    is_over = True
    if not learner:
        sys.exit(0)
    leave(learner)


def main() -> None:
    seeded = BaseAlgorithm.set_random_seed
    BaseAlgorithm.set_random_seed = lambda self, seed=None: seeded(self, SEED)
    BaseAlgorithm.save, BaseAlgorithm._setup_learn = save, setup_learn
    signal.signal(signal.SIGTERM, end)
    set_random_seed(SEED)
    sys.argv = sys.argv[2:]
    program = sys.argv[0]
    if "class" in HOW:
        give_keywords(HOW["class"])
    elif PARAMS:
        begun = {name: f"lin_{PARAMS[name]}" for name in HOW["schedules"] if name in PARAMS}
        sys.argv += ["--hyperparams", *(f"{name}:{value!r}" for name, value in {**PARAMS, **begun}.items())]
    if program.endswith(".py"):
        sys.path[0] = str(Path(program).parent.resolve())
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
