"""Plays the agent that an imported script has left, for the control judge.

It is a model of Stable-Baselines3 (`model.zip`, with `vecnormalize.pkl`), or the object that the evaluation of a
repository like zjianyi/autoRL is given (`agent.pkl`).
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
AS_PLAYER: Any = {
    "device": "cpu", "buffer_size": 1, "replay_buffer_class": None, "replay_buffer_kwargs": {},
    "optimize_memory_usage": False,
}  # fmt: skip
"""How a model is loaded: a buffer would fill the memory for nothing, and some need the environment."""
Play = Callable[[Any, Any, Any], Any]
"""Actions of all lanes, from the observations and the lanes that are active, and that begin."""


def of_sb3(folder: Path) -> Play:
    """Its likeliest actions; the state is what recurrent policies need."""
    module, name = json.loads((folder / "model.json").read_text())
    model = getattr(importlib.import_module(module), name).load(folder / "model.zip", **AS_PLAYER)
    statistics = folder / "vecnormalize.pkl"
    normalize = pickle.loads(statistics.read_bytes()).normalize_obs if statistics.is_file() else lambda seen: seen
    state: Any = None

    def play(seen: Any, active: Any, begins: Any) -> Any:
        nonlocal state
        actions, state = model.predict(normalize(seen), state, begins, deterministic=True)
        return actions

    return play


def of_agent(file: Path, actions: Any) -> Play:
    """An agent that is asked as its own evaluation asks it, one observation at a time."""
    import torch

    agent, device = pickle.loads(file.read_bytes())  # by cloudpickle, whose pickles any pickle reads

    def play(seen: Any, active: Any, begins: Any) -> Any:
        for lane in np.flatnonzero(active):
            one = torch.tensor(seen[lane], dtype=torch.float32, device=device).unsqueeze(0)
            with torch.no_grad():
                actions[lane] = agent.get_action(one)
        return actions

    return play


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print is log and cannot garble an answer
    import torch

    sys.path.insert(0, str(HERE / "repository"))
    hello = json.loads(sys.stdin.buffer.readline())
    lanes, leaves, [taken] = hello["lanes"], hello["observation"], hello["action"]
    actions = np.zeros((lanes, *taken["shape"]), taken["dtype"])
    folder = Path(json.loads((HERE / "config.json").read_text())["out"]) / "model"
    agent = folder / "agent.pkl"
    if not agent.is_file() and not (folder / "model.zip").is_file():
        sys.exit("training left no model: it ended before its first model had learned")
    torch.manual_seed(hello["seed"])
    np.random.seed(hello["seed"] % 2**32)
    play = of_agent(agent, actions) if agent.is_file() else of_sb3(folder)
    answers.write(b'{"ready": true}\n')
    answers.flush()
    parts = [(f"leaf {place}", leaf["dtype"], (lanes, *leaf["shape"])) for place, leaf in enumerate(leaves)]
    kind = np.dtype([("flags", "?", (2, lanes)), *parts])
    while frame := sys.stdin.buffer.read(kind.itemsize):
        (active, begins), *values = np.frombuffer(frame, kind)[0]
        seen = {leaf["path"]: values[at].copy() for at, leaf in enumerate(leaves)}
        actions[:] = play(seen[""] if [*seen] == [""] else seen, active, begins)
        answers.write(actions.tobytes())
        answers.flush()


if __name__ == "__main__":
    main()
