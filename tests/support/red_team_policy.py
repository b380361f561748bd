"""Tools of the red team for programs under judgement: a trial that is ready to be judged, and what came of it.

The programs speak the protocol in plain Python. What they try they say on standard error, which the engine keeps in
judge.txt, so that an attack that was not even made is told from one that failed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import environments
from environments.score import Score
from environments.space import Value
from tasks.evaluate import judge_run
from tasks.sandbox import confinement, outputs
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.trial import Proposal, Run

SEED = 4_611_686_018_427_387_847
"""The judge's; long, so that a program that knew it would be seen to."""
TRAINING_SEED = 7
MARKER = f"red/judge-{os.getpid()}"
MIB = 2**20

TOML = """\
metric = "return/mean"
direction = "maximize"
trainer = "command"
program = ["train.py"]
train_cmd = "python train.py"
budget_seconds = 5
judge = "control"

[control]
id = "CartPole-v1"
episodes = 4
other_episodes = 0
start_seconds = 20
answer_seconds = 10
total_seconds = 30

[limits]
output_mb = 1
"""

SPEAK = r"""
import json, os, pathlib, pickle, select, signal, struct, subprocess, sys, time

hello = json.loads(sys.stdin.buffer.readline())
config = json.loads(pathlib.Path("config.json").read_text())
OUT = pathlib.Path(config["out"])
lanes = hello["lanes"]
SIZE, READY = 18 * lanes, b'{"ready": true}\n'
BLANK = bytes(8 * lanes)

def say(data):
    while data:
        data = data[os.write(1, data):]

def tell(name, **more):
    os.write(2, ("@" + json.dumps({"name": name, **more}) + "\n").encode())  # whole, whoever else writes

def attempt(name, function):
    tell(name)
    try:
        tell(name, got=repr(function())[:200])
    except Exception as refused:
        tell(name, error=repr(refused)[:200])

def frame():
    data = b""
    while len(data) < SIZE and (more := os.read(0, SIZE - len(data))):
        data += more
    return data

def move(data):
    poles = struct.unpack(f"<{4 * lanes}f", data[2 * lanes:])
    return struct.pack(f"<{lanes}q", *(poles[4 * lane + 2] > 0 for lane in range(lanes)))

def play():
    while len(data := frame()) == SIZE:
        say(move(data))

tell("began")
"""
"""What every program begins with; `say(READY)` and `play()` make it an honest one, that pushes where the pole leans."""


@dataclass(frozen=True)
class Judged:
    """What came of one judgement."""

    score: Score
    place: TrialDir

    @property
    def told(self) -> dict[str, dict[str, object]]:
        """What the program says that it tried, the last word on each."""
        lines = self.place.judge_log.read_text(errors="replace").splitlines()
        reports = [json.loads(line[1:]) for line in lines if line.startswith("@")]
        return {report["name"]: report for report in reports}


def trained(folder: Path, act: str, level: Level, **settings: Value) -> tuple[environments.Environment, TrialDir, Run]:
    """A finished run whose program is `act`, and whose checkpoint is a file of eight bytes."""
    (folder / "env").mkdir(parents=True)
    (folder / "env/environment.toml").write_text(TOML)
    (folder / "env/train.py").write_text(SPEAK + act)
    environment = environments.load(folder / "env", settings)
    (folder / "program").mkdir()
    (folder / "program/train.py").write_text(SPEAK + act)
    place = TrialDir(folder / "trials/0007")
    digest = workspace.prepare(place, folder / "program", environment, Proposal({}), TRAINING_SEED)
    (place.out / "model.bin").write_bytes(b"weights\n")
    confinement.give(place.out, level)
    checkpoint = outputs.checkpoint(place.out)
    return (
        environment,
        place,
        Run("trials/0007", TRAINING_SEED, 1.0, "finished", program=digest, checkpoint=checkpoint),
    )


def judged(folder: Path, act: str, level: Level, **settings: Value) -> Judged:
    environment, place, run = trained(folder, act, level, **settings)
    return Judged(judge_run(MARKER, environment, Isolation(level), place, run, SEED), place)
