"""prime-rl: configurations of an old and a new version in today's keys, sweeps, results.tsv."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import environments
from environments.plugins import Refused
from tasks.importing import imported
from tests.importing.test_wandb_sweep import written

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


def test_an_old_configuration_is_carried_where_its_keys_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(OLD)
    (tmp_path / "prepare.py").write_text("TIME_BUDGET = 300\nraise SystemExit('it was run')\n")
    name, made = imported(str(tmp_path))
    environment = environments.load(written(made, tmp_path / "made"))
    environment.check_files()
    assert (name, environment.budget_steps, environment.budget_seconds) == ("prime_rl", 30, 300)
    baseline = environment.defaults
    assert (baseline["learning_rate"], baseline["batch_size"], baseline["group_size"]) == (3e-7, 64, 4)
    assert (baseline["temperature"], baseline["kl_tau"]) == (0.9, 0.0)  # the same name, and another meaning since
    assert tomllib.loads(str(made.files["train.toml"]))["trainer"]["optim"]["type"] == "muon"
    why = {term.theirs: term.ours for term in made.left}
    assert "of an old prime-rl" in why["trainer.loss.token_mask_high = 5.0"]
    assert {"trainer.loss.kl_tau = 0.05", "inference_gpu_ids = [0]"} <= why.keys()


def test_a_new_configuration_keeps_its_keys_and_finds_the_environment(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(NEW)
    _, made = imported(str(tmp_path / "mine.toml"))
    environment = environments.load(written(made, tmp_path / "made"))
    assert environment.defaults["kl_tau"] == 0.05 and environment.defaults["group_size"] == 16
    assert environment.prepare is not None
    assert environment.prepare.settings["model"] == "me/other"
    assert environment.prepare.settings["model_revision"] == "main" and "revision of the model" in [
        term.theirs for term in made.left
    ]
    assert tomllib.loads(str(made.files["train.toml"]))["seq_len"] == 1024


def test_questions_that_no_environment_has_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(OLD.replace("primeintellect/gsm8k", "me/wordle"))
    with pytest.raises(Refused, match="no environment here has the questions of me/wordle"):
        imported(str(tmp_path))
