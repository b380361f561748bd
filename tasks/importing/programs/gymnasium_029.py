"""Gives gymnasium 1 the behaviour of 0.29 that an imported script was written for.

Vector environments reset a lane in the step that ends its episode, and `infos` has `final_info` and
`final_observation` with an entry for each lane. `TransformObservation` needs no space. Under 0.29 nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np


def restore() -> None:
    """Replace the classes that behave otherwise since gymnasium 1."""
    if int(gymnasium.__version__.partition(".")[0]) < 1:
        return
    vector: Any = gymnasium.vector
    for name in ("SyncVectorEnv", "AsyncVectorEnv"):
        setattr(vector, name, _with_final_info(getattr(vector, name)))
    transform: Any = gymnasium.wrappers.TransformObservation

    class TransformObservation(transform):  # type: ignore[misc]
        def __init__(self, env: Any, func: Any, observation_space: Any = None) -> None:
            super().__init__(env, func, observation_space)

    gymnasium.wrappers.TransformObservation = TransformObservation  # type: ignore[misc]


def _with_final_info(kind: Any) -> Any:
    def made(self: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, *args, **{"autoreset_mode": "SameStep", **options})

    def step(self: Any, actions: Any) -> Any:
        *first, infos = kind.step(self, actions)
        return (*first, with_final_info(infos, self.num_envs))

    return type(kind.__name__, (kind,), {"__init__": made, "step": step})


def with_final_info(infos: dict[str, Any], lanes: int) -> dict[str, Any]:
    """Infos as in 0.29: a list with what each lane said at the end of its episode, None for the others."""
    if "final_info" not in infos:
        return infos
    ended = infos["_final_info"]
    finals = [_of_lane(infos["final_info"], lane) if ended[lane] else None for lane in range(lanes)]
    return {**infos, "final_info": finals, "final_observation": infos["final_obs"], "_final_observation": ended}


def _of_lane(infos: Mapping[str, Any], lane: int) -> dict[str, Any]:
    """What one lane said, out of arrays for all lanes."""
    found: dict[str, Any] = {}
    for name, values in infos.items():
        if name.startswith("_") or not np.all(infos.get(f"_{name}", [True] * (lane + 1))[lane]):
            continue
        found[name] = _of_lane(values, lane) if isinstance(values, Mapping) else values[lane]
    if "episode" in found:
        found["episode"] = {name: np.array([value]) for name, value in found["episode"].items()}
    return found
