"""Coverage of the interval that `reproduce.sh` checks a new run against (flows/export/folder.py).

    python -m benchmarks.prediction_interval [--draws 20000] [--json]
    python -m benchmarks.prediction_interval --real 20

Simulated: k runs of a champion and one new run are drawn alike, the interval is computed from the k by the code of
`nightshift export`, and the share of new runs inside is counted over `--draws` champions. `normal`: normal noise.
`collapses`: one run in ten (or in twenty-five) falls by five run sds. The share is an average over champions: an
interval from few runs is wide for some and narrow for others.

Real (`--real N`): a campaign on a command environment (one parameter, normal noise of sd 1 between runs) is run and
exported, and N times `reproduce.sh` trains, judges and compares: the share that it calls inside.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from flows.export.folder import COVERS, interval_of

RUNS = (2, 3, 4, 5, 8, 10, 17)
COLLAPSES = {"normal": 0.0, "collapses, 1 in 25": 0.04, "collapses, 1 in 10": 0.1}
DEPTH = 5.0
"""How far a collapsed run falls, in run sds."""
Values = NDArray[np.float64]
TOML = """\
title = "Noisy line"
metric = "reward"
direction = "maximize"
trainer = "command"
program = ["draw.py"]
train_cmd = "python draw.py"
editable = ["draw.py"]
budget_seconds = 5
allow_untrained = true
startup_seconds = 2
grace_seconds = 0.5
judge = "command"
command.eval_cmd = "python judge.py {out} {result}"
limits.least_seconds = 0
space.x = { type = "float", low = -20.0, high = 20.0, default = 0.0 }
"""
DRAW = """\
import json, pathlib, random
config = json.loads(pathlib.Path("config.json").read_text())
reward = config["params"]["x"] + random.Random(config["seed"]).gauss(0, 1)
pathlib.Path(config["out"], "model.json").write_text(json.dumps({"reward": reward}))
"""
JUDGE = """\
import json, pathlib, sys
reward = json.loads(pathlib.Path(sys.argv[1], "model.json").read_text())["reward"]
pathlib.Path(sys.argv[2]).write_text(json.dumps({"score": reward}))
"""


@dataclass(frozen=True)
class Coverage:
    noise: str
    runs: int
    inside: float
    width: float
    """Median width, in run sds."""


def coverage(noise: str, runs: int, draws: int) -> Coverage:
    rng = np.random.default_rng(runs)
    values = rng.normal(size=(draws, runs + 1))
    values -= DEPTH * (rng.random(values.shape) < COLLAPSES[noise])
    ends = np.array([interval_of(row) for row in values[:, :runs].tolist()])
    inside = (ends[:, 0] <= values[:, runs]) & (values[:, runs] <= ends[:, 1])
    return Coverage(noise, runs, float(inside.mean()), float(np.median(ends[:, 1] - ends[:, 0])))


def real(times: int, folder: Path) -> tuple[int, dict[str, float]]:
    """How many new runs `reproduce.sh` calls inside, and the interval."""
    problem, champion = folder / "line", folder / "champion"
    problem.mkdir()
    for name, text in (("environment.toml", TOML), ("draw.py", DRAW), ("judge.py", JUDGE)):
        (problem / name).write_text(text)
    own = {name: value for name, value in os.environ.items() if name not in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")}
    path = f"{Path(sys.executable).parent}:{own['PATH']}"
    environment = {**own, "NIGHTSHIFT_HOME": str(folder / "runs"), "PATH": path}

    def call(*command: str) -> int:
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        return done.returncode

    asked = ("--trials", "6", "--tracking", "off", "--name", "line", "--proposer", "random_search")
    call("nightshift", "run", str(problem), *asked)
    call("nightshift", "export", "line", "--to", str(champion))
    inside = sum(call(str(champion / "reproduce.sh")) == 0 for _ in range(times))
    return inside, json.loads((champion / "result.json").read_text())["expected"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--real", type=int, default=0, help="run reproduce.sh so many times instead")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.real:
        with tempfile.TemporaryDirectory() as folder:
            inside, expected = real(args.real, Path(folder))
        found = {"times": args.real, "inside": inside, "expected": expected}
        print(json.dumps(found, indent=2) if args.json else f"{inside} of {args.real} inside {expected}")
        return
    every = [coverage(noise, runs, args.draws) for noise in COLLAPSES for runs in RUNS]
    if args.json:
        print(json.dumps([vars(one) for one in every], indent=2))
        return
    table = Table("noise", "runs", f"inside ({COVERS:.0%} wanted)", "median width, in run sds")
    for one in every:
        table.add_row(one.noise, str(one.runs), f"{one.inside:.3f}", f"{one.width:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
