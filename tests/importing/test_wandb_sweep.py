"""W&B sweeps: distributions, commands with their macros, and a program that logs to a stand-in for wandb."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from tasks.importing import Imported, imported
from tasks.importing.wandb_sweep import parameter
from tests.support.toy import folder_of

PROGRAM = """\
import argparse
import numpy as np
import wandb
from torch.utils.tensorboard import SummaryWriter

RATE = 3e-3
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=RATE)
parser.add_argument("--use_bn", action="store_true")
parser.add_argument("--random-seed", type=int)
parser.add_argument("--batch-size", type=int)
parser.set_defaults(batch_size=64)
for name in ("--name", "--layers", "--epochs"):
    parser.add_argument(name)
args = parser.parse_args()
defaults = argparse.Namespace(momentum=0.9, epochs=99, name="sgd")
SummaryWriter("runs").add_scalar("charts/return", 3, 0)
with wandb.init(project="x", config=defaults, sync_tensorboard=True) as run:
    assert (run.config.momentum, wandb.config["epochs"]) == (0.9, 2), dict(run.config)
    for epoch in range(int(args.epochs)):
        run.log({"loss (%)": np.array([1 / (epoch + 1)]), "deep": {"er": epoch}, "picture": wandb.Image(None)})
    open("model.txt", "w").write("saved beside the program")
    wandb.run.summary["seed"] = args.random_seed
print(args.learning_rate, args.layers, args.use_bn)
"""
SWEEP = """\
program: train.py
method: random
run_cap: 12
metric: {name: loss (%), goal: minimize}
command: ["${env}", "${interpreter}", "${program}", "${args_no_boolean_flags}"]
early_terminate: {type: hyperband, min_iter: 3}
parameters:
  learning-rate: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  layers: {values: [[64], [64, 64]]}
  epochs: {value: 2}
  name: {values: [adam, sgd]}
  use_bn: {values: [true, false]}
  batch-size: {values: [16, 64]}
  random-seed: {values: [0, 1, 2]}
  nested: {parameters: {inner: {value: 1}}}
  strange: {distribution: cauchy, min: 1, max: 2}
"""


def sweep(folder: Path, text: str = SWEEP) -> Path:
    return folder_of(folder, {"train.py": PROGRAM, "sweep.yaml": text})


def read(place: Path | str, kind: str = "wandb_sweep") -> tuple[Imported, dict[str, Any]]:
    name, made = imported(str(place))
    assert name == kind
    return made, tomllib.loads(str(made.files["environment.toml"]))


@pytest.mark.parametrize(
    ("stated", "table"),
    [
        ({"min": 1, "max": 8}, {"type": "int", "low": 1, "high": 8}),
        ({"distribution": "log_uniform_values", "min": "1e-4", "max": 1}, {"type": "float", "low": 1e-4, "high": 1.0}),
        ({"distribution": "q_log_uniform_values", "min": 32, "max": 64, "q": 8}, {"values": [32, 40, 48, 56, 64]}),
        ({"values": ["1e-3", 1e-3, 0.1, True]}, {"values": [1e-3, 0.1, True]}),
    ],
)
def test_a_distribution_becomes_a_range(stated: dict[str, Any], table: dict[str, Any]) -> None:
    converted = parameter(stated, None)
    assert not isinstance(converted, str), converted
    made = converted.table
    assert {key: made[key] for key in table} == table
    assert bool(made.get("log")) == str(stated.get("distribution")).startswith("log")


def written(made: Imported, run: Path) -> Path:
    """The workspace of a trial, with its folder out."""
    texts = {name: one if isinstance(one, str) else one.read_text() for name, one in made.files.items()}
    folder_of(run, texts)
    for folder in ("out", "tmp"):
        (run / folder).mkdir()
    return run


def ran(run: Path, params: dict[str, Any], seed: int) -> tuple[Any, list[Any]]:
    """The result and the reports of the program in a workspace."""
    config = {"params": params, "seed": seed, "out": str(run / "out"), "budget_steps": 0}
    (run / "config.json").write_text(json.dumps(config))
    [program] = tomllib.loads((run / "environment.toml").read_text())["editable"]
    there = {**os.environ, "TMPDIR": str(run / "tmp")}
    subprocess.run([sys.executable, "train.py", program], cwd=run, check=True, env=there)
    reports = (run / "out/progress.jsonl").read_text().splitlines()
    return json.loads((run / "out/result.json").read_text()), [*map(json.loads, reports)]


def test_a_sweep_is_carried_and_its_program_runs_unchanged_with_a_stand_in_for_wandb(tmp_path: Path) -> None:
    made, table = read(sweep(tmp_path / "mine"))
    defaults = {name: one["default"] for name, one in table["space"].items()}
    assert defaults == {
        "learning-rate": 0.003, "layers": "[64]", "name": "adam", "use_bn": False, "batch-size": 64,
    }  # fmt: skip
    assert table["fixed"] == {"epochs": 2} and (table["metric"], table["direction"]) == ("loss", "minimize")
    assert table["editable"] == ["repository/train.py"]
    assert made.options == ("--proposer", "random_search", "--trials", "12")
    left = {term.theirs for term in made.left}
    assert {"early_terminate", "parameter nested", "parameter strange", "random-seed", "metric loss (%)"} <= left
    assert {"layers", "name"} == left & {*defaults}, "told where the baseline is not the program's own"
    run = written(made, tmp_path / "run")
    params = {"learning-rate": 0.01, "layers": "[64, 64]", "epochs": 2, "name": "sgd", "use_bn": True}
    result, reports = ran(run, params, 7)
    assert (run / "out/run.log").read_text().strip() == "0.01 [64, 64] True"
    assert (run / "out/repository/model.txt").is_file()
    assert result == {"score": 0.5, "also": {"charts/return": 3.0, "deep.er": 1.0, "seed": 7.0}}
    assert reports[0] == {"ready": True}
    assert [one["metrics"].get("loss") for one in reports[1:]] == [None, 1.0, 0.5, None]


def test_a_sweep_that_cannot_be_carried_is_refused(tmp_path: Path) -> None:
    cases = {
        "${args_no_boolean_flags}": "has no value here",
        "metric: {name: loss (%), goal: minimize}\n": "metric: must be",
    }
    for number, (old, said) in enumerate(cases.items()):
        place = sweep(tmp_path / str(number), SWEEP.replace(old, "${envvar:HOME}" if number == 0 else ""))
        with pytest.raises(Refused, match=said):
            imported(str(place))
