"""Gymnasium environments for tests of the control judge, which makes them in a process of its own."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence

sys.stdout.write("imported\n")  # which nobody hears of


class Drift(gymnasium.Env[Any, Any]):
    """Pays the first number of the action minus the second, for a length that the seed draws; does `does` at step 3."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(
        self, length: int = 0, does: str = "", observation_space: Any = None, action_space: Any = None
    ) -> None:
        """The spaces in place of those above are for what is refused before any step."""
        self.length, self.fixed_length, self.does = length, length, does
        self.observation_space = observation_space or self.observation_space
        self.action_space = action_space or self.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        sys.stdout.write("an episode begins\n")
        self.length = self.fixed_length or int(self.np_random.integers(3, 10))
        self.step_number = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        assert self.step_number < self.length, "stepped after the end"
        self.step_number += 1
        self.reward: Any = float(action[0] - action[1])
        if self.step_number == 3:
            exec(f"import os, signal, sys, time\n{self.does}")
        return self._look(), self.reward, self.step_number == self.length, False, {}

    def _look(self) -> Any:
        return np.array([self.step_number + 1, self.length], np.float32)


def unsorted(**parts: Any) -> spaces.Dict:
    """A Dict that keeps its keys as they are written; gymnasium sorts those of a plain dict."""
    return spaces.Dict(OrderedDict(parts))


class Nest(gymnasium.Env[Any, Any]):
    """Every observed leaf belongs at another place of the action; both spaces are written down unsorted."""

    observation_space = unsorted(
        b=spaces.Tuple(
            (spaces.Discrete(5, start=-2), unsorted(z=spaces.MultiBinary(3), a=spaces.MultiDiscrete([3, 4])))
        ),
        a=spaces.Box(-9, 9, (2,), np.float64),
    )
    action_space = spaces.Tuple(
        (
            spaces.MultiDiscrete([3, 4]),
            spaces.Box(-9, 9, (2,), np.float32),
            unsorted(y=spaces.Discrete(5, start=-2), x=spaces.MultiBinary(3)),
        )
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.seen = self.observation_space.sample()
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        number, inner = self.seen["b"]
        right = inner["a"], self.seen["a"].astype(np.float32), {"x": inner["z"], "y": number}
        self.seen = self.observation_space.sample()
        return self.seen, float(data_equivalence(action, right)), False, False, {}


gymnasium.register("Drift-v0", Drift, max_episode_steps=50)
gymnasium.register("Nest-v0", Nest, max_episode_steps=6)
gymnasium.register("Drifting-v0", Drift)
