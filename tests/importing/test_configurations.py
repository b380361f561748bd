"""Configurations: W&B sweeps, whose program logs to a stand-in for wandb, and prime-rl's of an old and a new version."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from tasks.importing import _original, imported
from tasks.importing.wandb_sweep import parameter
from tests.importing.test_importers import brought, run
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
        run.log({"of the site": run.starting_step}, commit=isinstance(run, wandb.Run | None))
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

OLD = """\
inference_gpu_ids = [0]
max_steps = 30
[model]
name = "Qwen/Qwen2.5-0.5B-Instruct"
[orchestrator]
batch_size = 64
rollouts_per_example = 4
[orchestrator.sampling]
temperature = 0.9
[[orchestrator.env]]
id = "primeintellect/gsm8k"
[orchestrator.eval]
num_examples = 100
[trainer.optim]
type = "muon"
lr = 3e-7
[trainer.loss]
token_mask_high = 5.0
kl_tau = 0.05
[trainer.model]
compile = {}
"""
NEW = """\
max_steps = 10
seq_len = 1024
[model]
name = "me/other"
[orchestrator]
group_size = 16
[[orchestrator.train.source]]
name = "a"
env.taskset.id = "gsm8k"
[[orchestrator.eval.source]]
name = "b"
env.taskset.id = "gsm8k"
[trainer.loss]
kl_tau = 0.05
"""


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


def test_a_sweep_is_carried_and_its_program_runs_unchanged_with_a_stand_in_for_wandb(tmp_path: Path) -> None:
    environment, made = brought(
        folder_of(tmp_path / "mine", {"train.py": PROGRAM, "sweep.yaml": SWEEP}), tmp_path / "here"
    )
    tuned = {"learning-rate": 0.003, "layers": "[64]", "name": "adam", "use_bn": False, "batch-size": 64}
    assert environment.defaults == {**tuned, "epochs": 2} and environment.space.keys() == tuned.keys()
    assert (environment.metric, environment.direction) == ("loss", "minimize")
    assert environment.editable == ("repository/train.py",)
    assert made.options == ("--proposer", "random_search", "--trials", "12")
    left = {term.theirs for term in made.left}
    assert {"early_terminate", "parameter nested", "parameter strange", "random-seed", "metric loss (%)"} <= left
    assert {"layers", "name"} == left & {*tuned}, "told where the baseline is not the program's own"
    params = {"learning-rate": 0.01, "layers": "[64, 64]", "name": "sgd", "use_bn": True}
    _, score = run(environment, tmp_path / "0000", **params)
    out = tmp_path / "0000/out"
    assert (out / "run.log").read_text().strip() == "0.01 [64, 64] True"
    assert (out / "repository/model.txt").is_file()
    assert (score.value, score.also) == (0.5, {"charts/return": 3.0, "deep.er": 1.0, "seed": 7.0})
    ready, *reports = map(json.loads, (out / "progress.jsonl").read_text().splitlines())
    assert ready == {"ready": True}
    assert [one["metrics"].get("loss") for one in reports] == [None, 1.0, 0.5, None]


def test_an_old_configuration_is_carried_where_its_keys_mean_the_same(tmp_path: Path) -> None:
    prepare = "TIME_BUDGET = 5 * 60\nraise SystemExit('it was run')\n"
    place = folder_of(tmp_path / "mine", {"train.toml": OLD, "prepare.py": prepare})
    environment, made = brought(place, tmp_path / "made")
    environment.check_files()
    assert (environment.trainer, environment.budget_steps, environment.budget_seconds) == ("prime_rl", 30, 300)
    baseline = environment.defaults
    assert (baseline["learning_rate"], baseline["batch_size"], baseline["group_size"]) == (3e-7, 64, 4)
    assert (baseline["temperature"], baseline["kl_tau"]) == (0.9, 0.0)  # the same name, and another meaning since
    assert tomllib.loads(str(made.files["train.toml"]))["trainer"]["optim"]["type"] == "muon"
    why = {term.theirs: term.ours for term in made.left}
    assert "of an old prime-rl" in why["trainer.loss.token_mask_high = 5.0"]
    assert {"trainer.loss.kl_tau = 0.05", "inference_gpu_ids = [0]"} <= why.keys()


def test_a_new_configuration_keeps_its_keys_and_finds_the_environment(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(NEW)
    environment, made = brought(tmp_path / "mine.toml", tmp_path / "made")
    assert environment.defaults["kl_tau"] == 0.05 and environment.defaults["group_size"] == 16
    assert environment.prepare is not None
    model = [environment.prepare.settings[name] for name in ("model", "model_revision")]
    assert model == ["me/other", "main"] and "revision of the model" in [term.theirs for term in made.left]
    assert tomllib.loads(str(made.files["train.toml"]))["seq_len"] == 1024


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("sweep.yaml", SWEEP.replace("${args_no_boolean_flags}", "${envvar:HOME}"), "has no value here"),
        ("sweep.yaml", SWEEP + "\nnote: 2024-13-45\n", "is not YAML: month must be in 1..12"),
        ("sweep.yaml", SWEEP.replace("metric: {name: loss (%), goal: minimize}\n", ""), "metric: must be"),
        ("train.toml", OLD.replace("primeintellect/gsm8k", "me/wordle"), "here has the questions of me/wordle"),
    ],
)
def test_a_configuration_that_cannot_be_carried_is_refused(tmp_path: Path, file: str, text: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        imported(str(folder_of(tmp_path, {"train.py": PROGRAM, file: text})))


def test_arithmetic_without_end_is_no_literal() -> None:
    found = [_original.literal(ast.parse(text, mode="eval").body) for text in ("3 * 10**-2", "9**9**9", "'a' * 10**16")]
    assert found == [0.03, None, None]
