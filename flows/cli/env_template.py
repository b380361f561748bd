"""`nightshift env new`: a small environment that runs, as a start for your own."""

from __future__ import annotations

import shlex
from pathlib import Path

import tomlkit

from environments import FILE
from environments.plugins import Refused

ENVIRONMENT = """\
title = {title}
metric = "loss"                  # measured by the judge; its name in MLflow
direction = "minimize"           # or "maximize"
trainer = "command"              # your own program
program = ["train.py"]           # files copied into every trial's workspace
train_cmd = "python train.py --lr {{lr}} --steps {{steps}} --seed {{seed}} --out {{out}}"
budget_seconds = 30              # training is stopped after this time
# cores = 2                      # processor cores of a run; train.py finds the number in config.json
# readable = ["data"]            # paths that training may read too; evaluate.py reads this whole folder
# network = true                 # off by default
judge = "command"                # a frozen command; scores that train.py prints are ignored

[command]
eval_cmd = "python evaluate.py {{out}} {{result}}"    # runs here, in a frozen copy of this folder

[space.lr]                       # parameters to vary; the defaults are the baseline
type = "float"
low = 1e-4
high = 1.0
log = true
default = 1e-3

[space.steps]
type = "int"
low = 10
high = 1000
log = true
default = 100
"""

PROGRAM = """\
# {title}

For the proposer, a person or a model: the problem, the metric, what may be changed, and what is known.
"""

TRAIN = '''\
"""Fit a line by gradient descent: stands in for your own training script."""

import argparse
import json
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--steps", type=int)
parser.add_argument("--seed", type=int)
parser.add_argument("--out", type=Path)
args = parser.parse_args()

random.seed(args.seed)
slope, offset = random.uniform(-1, 1), random.uniform(-1, 1)
for step in range(args.steps):
    x = random.uniform(-1, 1)
    error = slope * x + offset - (3 * x + 2 + random.gauss(0, 0.1))
    slope -= args.lr * 2 * error * x
    offset -= args.lr * 2 * error
(args.out / "model.json").write_text(json.dumps({"slope": slope, "offset": offset}))
'''

EVALUATE = '''\
"""The judge: mean squared error on points that training never saw. Writes {"score": x} or {"units": [...]}."""

import json
import sys
from pathlib import Path

out, result = Path(sys.argv[1]), Path(sys.argv[2])
model = json.loads((out / "model.json").read_text())
points = [i / 50 - 1 for i in range(101)]
units = [(model["slope"] * x + model["offset"] - (3 * x + 2)) ** 2 for x in points]
result.write_text(json.dumps({"units": units}))
'''


def write_environment(folder: Path) -> str:
    """Write the template into a folder, and return a message with the next command.

    Raises:
        Refused: one of the files exists already.
    """
    title = folder.resolve().name
    contents = {
        FILE: ENVIRONMENT.format(title=tomlkit.string(title).as_string()),
        "program.md": PROGRAM.format(title=title),
        "train.py": TRAIN,
        "evaluate.py": EVALUATE,
    }
    for name in contents:
        if (folder / name).exists():
            raise Refused(f"{folder / name} exists already: choose another folder, or write {FILE} yourself")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name).write_text(text)
    here = str(folder) if folder.is_absolute() or str(folder).startswith(".") else f"./{folder}"
    typed = shlex.quote(here)
    wrote = f"wrote {here}: {', '.join(contents)}"
    return f"{wrote}\nnext: nightshift env validate {typed} && nightshift run {typed} --trials 5"
