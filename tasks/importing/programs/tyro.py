"""In place of tyro in an imported script: its options are the parameters of the trial, the others the file's own.

Under gymnasium 1 vector environments reset a lane in the step that ends its episode and have `final_info`, as until
0.29: that is what such scripts count episodes by. `TransformObservation` needs no space. Nothing else is brought back.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

from autoresearch_rl.target.progress import emit_ready  # type: ignore[import-not-found]


def cli(options: Any, *_: object, **__: object) -> object:
    """The script's options, with the values of the trial. The budget begins here: packages are imported."""
    values, known = json.loads(os.environ["AR_PARAMS_JSON"]), {field.name for field in dataclasses.fields(options)}
    if missing := sorted(values.keys() - known):
        raise SystemExit(f"{options.__name__} in {sys.argv[0]} has no {', '.join(missing)} any more")
    if os.environ.get("GYMNASIUM_029"):
        restore_gymnasium_029()
    emit_ready()
    return options(**values)


def restore_gymnasium_029() -> None:
    import gymnasium

    if int(gymnasium.__version__.partition(".")[0]) < 1:
        return
    for name in ("SyncVectorEnv", "AsyncVectorEnv"):
        setattr(gymnasium.vector, name, with_final_info(getattr(gymnasium.vector, name)))
    transform: Any = gymnasium.wrappers.TransformObservation
    transform.__init__.__defaults__ = (None,)  # of observation_space


def with_final_info(kind: Any) -> Any:
    import numpy as np

    def begin(self: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, *args, **{"autoreset_mode": "SameStep", **options})

    def step(self: Any, actions: Any) -> Any:
        *first, infos = kind.step(self, actions)
        if "final_info" in infos:
            ended, figures = infos["_final_info"], infos["final_info"].get("episode", {})
            names = [name for name in figures if not name.startswith("_")]
            infos["final_info"] = [
                {"episode": {name: np.array([figures[name][lane]]) for name in names}} if over else None
                for lane, over in enumerate(ended)
            ]
            infos |= {"final_observation": infos["final_obs"], "_final_observation": ended}
        return (*first, infos)

    return type(kind.__name__, (kind,), {"__init__": begin, "step": step})
