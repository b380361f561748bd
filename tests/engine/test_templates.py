"""Which packages a campaign imports ahead: those of the kinds that its trainings and its judgements are of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import environments
from flows.engine.preparation import judging_kind, training_kind, warm_starts
from flows.spec.campaign_spec import CampaignSpec
from tasks import imports_ahead
from tasks.evaluate import judge_run
from tasks.sandbox.isolation import Isolation
from tasks.sandbox.outputs import checkpoint
from tasks.sandbox.warm import templates
from tasks.sandbox.warm.kind import Kind
from tasks.store.workspace import TrialDir, program_digest
from tasks.train import run_program
from tasks.trial import Proposal, Run
from tests.support.noisy import campaign, noisy

TOML = """
title = "Idle"
metric = "return/mean"
direction = "maximize"
budget_seconds = 5
trainer = "ppo"
program = ["train.py"]
judge = "control"
control.id = "CartPole-v1"
control.episodes = 1
control.other_episodes = 0
"""
PROGRAM = """
import json, pathlib
out = pathlib.Path(json.loads(pathlib.Path("config.json").read_text())["out"])
(out / "policy").write_text("none")
"""


class Recording(templates.Templates):
    """Has no template, and keeps what is asked for."""

    def start(self, kind: Kind, *_: object, **__: object) -> None:
        asked.append(kind)


asked: list[Kind] = []


def test_trainings_and_judgements_are_of_the_kinds_that_a_campaign_prepares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, place = tmp_path / "idle", TrialDir(tmp_path / "trials/0001")
    folder.mkdir()
    place.path.mkdir(parents=True)
    (folder / "environment.toml").write_text(TOML)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "program.md").write_text("Nothing is learned.")
    environment = environments.load(folder)
    nothing = Recording(tmp_path / "templates", "test-templates", print)
    monkeypatch.setattr(templates, "_open", nothing)
    isolation, program = Isolation("none"), folder
    run = run_program("test-templates", environment, isolation, program, place, Proposal({}), 1)
    assert run.status == "finished", run.error
    judge_run("test-templates", environment, isolation, place, run, 1)  # it never answers: a crash
    nothing.close()
    assert asked == [training_kind(environment), judging_kind(environment)]


def test_the_generator_of_a_text_judge_is_of_the_kind_that_a_campaign_prepares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = environments.named("arithmetic")
    place = TrialDir(tmp_path / "trials/0001")
    place.out.mkdir(parents=True)
    place.workspace.mkdir()
    nothing = Recording(tmp_path / "templates", "test-templates", print)
    monkeypatch.setattr(templates, "_open", nothing)
    asked.clear()
    run = Run("trials/0001", 1, 1.0, "finished", program=program_digest(place), checkpoint=checkpoint(place.out))
    score = judge_run("test-templates", environment, Isolation("none"), place, run, 1)
    assert score.error is not None and "there are no questions" in score.error
    nothing.close()
    assert asked == [judging_kind(environment)]
    assert asked[0].ahead


def test_a_certificate_elsewhere_has_the_packages_of_that_environment_imported_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, there = campaign(noisy(tmp_path / "noisy")), tmp_path / "idle"
    there.mkdir()
    (there / "environment.toml").write_text(TOML)
    (there / "train.py").write_text(PROGRAM)
    (there / "program.md").write_text("Nothing is learned.")
    other = environments.load(there)
    spec = CampaignSpec.of(environment=str(tmp_path / "noisy"), name="night", tracking="off")
    prepared: list[Kind] = []
    monkeypatch.setattr(templates.Templates, "prepare", lambda _, kind: prepared.append(kind))
    with warm_starts(spec, ledger, ledger.environment):
        assert prepared == [], "programs of the trainer `command` start cold"
    with warm_starts(spec, ledger, other):
        assert prepared == [training_kind(other), judging_kind(other)]


@pytest.mark.parametrize("name", ["cartpole", "lunar_lander", "pendulum", "arithmetic"])
def test_every_package_of_the_lists_can_be_imported_ahead(name: str) -> None:
    """By name: to import them takes seconds."""
    import importlib.util

    environment = environments.named(name)
    for ahead in (imports_ahead.for_training(environment), imports_ahead.for_judging(environment)):
        for entry in ahead.modules:
            assert importlib.util.find_spec(entry.partition(":")[0].partition(".")[0]), entry
    assert imports_ahead.for_training(environment)
    assert json.dumps(imports_ahead.for_training(environment).variables)
