"""Tiny act programs, as source text, and a candidate that runs one as the engine does, without a sandbox.

The programs are written as a person would write them, with numpy and nothing of ours: they import no
gymnasium and see only what the judge sends.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from environments.limits import Limits
from tasks.evaluate import PipedCandidate
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.program import Program

PRELUDE = r"""
import json, os, sys, time
import numpy as np

pipe_in, pipe_out = os.fdopen(0, "rb", closefd=False), os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # from here on, print() goes to the log
hello = json.loads(pipe_in.readline())
lanes = hello["lanes"]

def say(data):
    pipe_out.write(data)
    pipe_out.flush()

def ready():
    say(b'{"ready": true}\n')

def frames():
    seen = [(np.dtype(leaf["dtype"]), (lanes, *leaf["shape"])) for leaf in hello["observation"]]
    size = 2 * lanes + sum(int(np.prod(shape)) * dtype.itemsize for dtype, shape in seen)
    while len(frame := pipe_in.read(size)) == size:
        active, start = np.frombuffer(frame, np.bool_, 2 * lanes).reshape(2, lanes)
        columns, offset = [], 2 * lanes
        for dtype, shape in seen:
            columns.append(np.ndarray(shape, dtype, frame, offset))
            offset += columns[-1].nbytes
        yield active, start, columns

def pack(*columns):
    parts = []
    for leaf, column in zip(hello["action"], columns, strict=True):
        assert column.shape == (lanes, *leaf["shape"]), (leaf, column.shape)
        parts.append(column.astype(leaf["dtype"]).tobytes())
    return b"".join(parts)

def answer(*columns):
    say(pack(*columns))

def blank():
    return [np.zeros((lanes, *leaf["shape"]), leaf["dtype"]) for leaf in hello["action"]]
"""
"""What every program needs to speak the protocol; a body follows it."""

RECORDER = """
record = open("frames.bin", "wb")
ready()
for active, start, (column,) in frames():
    record.write(active.tobytes() + start.tobytes() + column.tobytes())
    record.flush()
    answer(*blank())
"""
"""Keeps the frames that it is sent, of a space with one leaf, in frames.bin."""

SAMPLER = """
draw = np.random.default_rng(hello["seed"])
assert hello["deterministic"] == [False] * lanes
ready()
for active, start, columns in frames():
    answer(*(draw.uniform(-1, 1, column.shape) for column in blank()))
"""

SORTER = """
with open("hello.json", "w") as file:
    json.dump(hello, file)
ready()
for active, start, (a, b0, b1a, b1z) in frames():
    answer(b1a, a, b1z, b0)
"""
"""Puts each observed leaf where the action wants it."""


class PipeCandidate(PipedCandidate):
    """A command spoken to as the engine speaks to a candidate, without a sandbox; killed on leaving."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._started = Program(
            command, cwd=folder, log=folder / "log.txt", marker="test/candidate", level="none",
            view=VisiblePaths((), ()), limits=Limits(), pipes=True,
        )  # fmt: skip
        super().__init__(self._started, folder / "result.json", seconds=60)

    @classmethod
    def of(cls, body: str, folder: Path) -> PipeCandidate:
        """The act program with this body, started in `folder` as the engine would start it."""
        (folder / "train.py").write_text(f"{PRELUDE}\n{body}")
        return cls([sys.executable, "train.py", "act"], folder)

    def __enter__(self) -> PipeCandidate:
        return self

    def __exit__(self, *fault: Any) -> None:
        self._started.__exit__(*fault)
