"""Starts a script whose options are a dataclass: `python start.py SCRIPT`. The runner beside this hands its options on.

`tyro.cli` gives the script the parameters of the trial; the others stay at the file's own defaults. Scalars that it
writes for TensorBoard become reports. Under gymnasium 1 vector environments reset a lane in the step that ends its
episode and have `final_info`, as until 0.29: that is what such scripts count episodes by. `TransformObservation` needs
no space. Nothing else is brought back.
"""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import sys
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()
WRITERS = ("torch.utils.tensorboard", "tensorboardX", "tensorboard")
reports = Path(os.environ["AR_PROGRESS_FILE"]).open("a", buffering=1)  # noqa: SIM115 - until the script ends


def cli(options: type, *_: object, **__: object) -> object:
    """The script's options, with the values of the trial. The budget begins here: packages are imported."""
    values, known = json.loads(os.environ["AR_PARAMS_JSON"]), {field.name for field in dataclasses.fields(options)}
    if missing := sorted(values.keys() - known):
        raise SystemExit(f"{options.__name__} in {sys.argv[0]} has no {', '.join(missing)} any more")
    reports.write('{"ready": true}\n')
    return options(**values)


class SummaryWriter:
    """Takes scalars; everything else is dropped."""

    def __init__(self, log_dir: str | None = None, *_: Any, **__: Any) -> None:
        self.log_dir = log_dir or "runs"

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None, *_: Any, **__: Any) -> None:
        value = float(scalar_value.item() if hasattr(scalar_value, "item") else scalar_value)
        line = {"step": int(global_step or 0), "elapsed_s": time.monotonic() - BEGAN, "metrics": {tag: value}}
        reports.write(json.dumps(line) + "\n")

    def add_scalars(self, main_tag: str, tag_scalar_dict: Mapping[str, Any], *rest: Any, **more: Any) -> None:
        for tag, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{tag}", value, *rest, **more)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def restore_gymnasium_029() -> None:
    import gymnasium

    if int(gymnasium.__version__.partition(".")[0]) < 1:
        return
    for name in ("SyncVectorEnv", "AsyncVectorEnv"):
        setattr(gymnasium.vector, name, with_final_info(getattr(gymnasium.vector, name)))
    transform: Any = gymnasium.wrappers.TransformObservation

    class TransformObservation(transform):  # type: ignore[misc]
        def __init__(self, env: Any, func: Any, observation_space: Any = None) -> None:
            super().__init__(env, func, observation_space)

    gymnasium.wrappers.TransformObservation = TransformObservation  # type: ignore[misc]


def with_final_info(kind: Any) -> Any:
    import numpy as np

    def begin(self: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, *args, **{"autoreset_mode": "SameStep", **options})

    def step(self: Any, actions: Any) -> Any:
        *first, infos = kind.step(self, actions)
        if "final_info" in infos:
            ended, figures = infos["_final_info"], infos["final_info"].get("episode", {})
            names = [name for name in figures if not name.startswith("_")]
            episodes = [{name: np.array([figures[name][lane]]) for name in names} for lane in range(self.num_envs)]
            infos["final_info"] = [
                {"episode": one} if over else None for one, over in zip(episodes, ended, strict=True)
            ]
            infos |= {"final_observation": infos["final_obs"], "_final_observation": ended}
        return (*first, infos)

    return type(kind.__name__, (kind,), {"__init__": begin, "step": step})


def main() -> None:
    tyro, writers = types.ModuleType("tyro"), types.ModuleType("tensorboard")
    tyro.cli = cli  # type: ignore[attr-defined]
    writers.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    sys.modules.update({"tyro": tyro, **dict.fromkeys(WRITERS, writers)})
    script, *options = sys.argv[1:]
    if "--final-info" in options:
        restore_gymnasium_029()
    sys.argv, sys.path[0] = [script], str(Path.cwd())
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
