"""Plays the agent that an imported script has left, for the control judge, as the script's own evaluation calls it."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch


def send(answers: Any, data: bytes) -> None:
    answers.write(data)
    answers.flush()


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print is log and cannot garble an answer
    hello = json.loads(sys.stdin.buffer.readline())
    [seen], [taken], lanes = hello["observation"], hello["action"], hello["lanes"]
    torch.manual_seed(hello["seed"])
    out = Path(json.loads(Path(__file__).with_name("config.json").read_text())["out"])
    agent, device = cloudpickle.loads((out / "model/agent.pkl").read_bytes())
    size = math.prod(seen["shape"]) * np.dtype(seen["dtype"]).itemsize
    actions = np.zeros((lanes, *taken["shape"]), taken["dtype"])
    send(answers, b'{"ready": true}\n')
    while frame := sys.stdin.buffer.read(lanes * (2 + size)):
        active = np.frombuffer(frame, "?", lanes)
        observations = np.frombuffer(frame, seen["dtype"], offset=2 * lanes).reshape(lanes, *seen["shape"])
        for lane in np.flatnonzero(active):
            one = torch.tensor(observations[lane], dtype=torch.float32, device=device).unsqueeze(0)
            with torch.no_grad():
                actions[lane] = agent.get_action(one)
        send(answers, actions.tobytes())


if __name__ == "__main__":
    main()
