"""The key of a result: it tells apart what must be, and nothing that may change between two lives."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tasks.cache_key import At, history_digest, key, spec_digest

from flows.spec.advanced import Advanced
from flows.spec.campaign_spec import CampaignSpec
from tasks.decide import decide
from tasks.evaluate import evaluate
from tasks.propose import propose
from tasks.store.seeds import Purpose, derive
from tasks.train import train
from tasks.trial import History
from tests.support.histories import decided
from tests.support.toy import QUADRATIC, quadratic

AT = At("abc123", "0011223344556677", 7)
THREE: History = ()
for _score in (3.0, None, 2.0):
    THREE += (decided(THREE, _score, {"x": 1.0}),)


def key_of(task: Any, at: At = AT, history: History = THREE) -> str:
    """The key as Prefect asks for it."""
    return key(SimpleNamespace(task=task.task), {"at": at, "history": history})  # type: ignore[arg-type]


def test_a_key_spells_out_campaign_digest_trial_attempt_and_task() -> None:
    assert key_of(train) == "abc123/0011223344556677/0007/1/train"


def test_every_task_of_a_trial_has_a_key_of_its_own() -> None:
    keys = [key_of(task) for task in (propose, train, evaluate, decide)]
    assert len(set(keys)) == 4
    assert all(key.startswith("abc123/0011223344556677/0007/1/") for key in keys)


@pytest.mark.parametrize(
    "change", [{"campaign_id": "abc124"}, {"digest": "00112233445566ff"}, {"number": 8}, {"attempt": 2}]
)
@pytest.mark.parametrize("task", [propose, train, evaluate, decide])
def test_another_campaign_digest_trial_or_attempt_has_another_key(change: dict[str, Any], task: Any) -> None:
    assert key_of(task, dataclasses.replace(AT, **change)) != key_of(task)


@pytest.mark.parametrize("task", [propose, train, evaluate])
def test_only_a_decision_depends_on_the_history(task: Any) -> None:
    assert key_of(task, history=()) == key_of(task)
    assert key_of(decide, history=()) != key_of(decide)


def test_a_key_is_the_name_of_a_file_below_the_results() -> None:
    for task in (propose, train, evaluate, decide):
        path = (Path("/results") / key_of(task)).resolve()
        assert path.is_relative_to("/results") and len(path.name) < 100


def test_the_digest_of_a_history_does_not_see_how_long_anything_took() -> None:
    slower = tuple(
        dataclasses.replace(
            trial,
            wall_seconds=99.0,
            runs=(dataclasses.replace(trial.runs[0], seconds=50.0, wall_seconds=60.0, started=1.0, peak_memory=1),),
        )
        for trial in THREE
    )
    assert history_digest(slower) == history_digest(THREE)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_digest_of_a_history_sees_every_score(place: int) -> None:
    other: History = ()
    for index, trial in enumerate(THREE):
        other += (decided(other, 9.0 if index == place else trial.score.value, {"x": 1.0}),)
    assert history_digest(other) != history_digest(THREE)


def test_the_digest_of_a_history_sees_parameters_and_order() -> None:
    first, second, third = THREE
    moved = dataclasses.replace(third, proposal=dataclasses.replace(third.proposal, params={"x": 1.5}))
    digests = {
        history_digest(history) for history in (THREE, (first, second), (first, second, moved), (second, first, third))
    }
    assert len(digests) == 4


def test_digests_and_seeds_are_the_same_in_every_process() -> None:
    code = (
        "from tests.engine.test_checkpoint import *\n"
        "print(history_digest(THREE), spec_digest({'b': [1], 'a': {'y': 2.5, 'x': None}}), derive(7, 'search', 3, 1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
    )
    here = [history_digest(THREE), spec_digest({"a": {"x": None, "y": 2.5}, "b": [1]}), str(derive(7, "search", 3, 1))]
    assert done.stdout.split() == here, done.stderr


def test_seeds_differ_by_purpose_trial_and_attempt_but_not_by_anything_else() -> None:
    purposes: tuple[Purpose, ...] = ("propose", "train", "search")
    seeds = {derive(7, purpose, trial, attempt) for purpose in purposes for trial in range(50) for attempt in (1, 2)}
    assert len(seeds) == 3 * 50 * 2
    assert derive(7, "train", 3, 1) == derive(7, "train", 3, 1) != derive(8, "train", 3, 1)
    assert all(0 <= derive(7, "train", trial, 1) < 2**31 for trial in range(200))


def digest(tmp_path: Path, name: str, toml: str = QUADRATIC, **parameters: Any) -> str:
    """The digest of a campaign as it is created."""
    folder = quadratic(tmp_path / "quad", toml=toml)
    asked = {"environment": str(folder), "name": name, "seed": 3, **parameters}
    return CampaignSpec.of(**asked).open().campaign.digest


@pytest.mark.parametrize(
    "guards",
    [
        {"trials": 3},
        {"hours": 1.0},
        {"until": "2031-01-01T07:30"},
        {"tracking": "off"},
        {"advanced": Advanced(patience=2, crash_share=0.3)},
    ],
)
def test_a_guard_is_not_in_the_digest(tmp_path: Path, guards: dict[str, Any]) -> None:
    assert digest(tmp_path, "one", **guards) == digest(tmp_path, "other")


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4},
        {"proposer": "grid"},
        {"advanced": Advanced(overrides={"budget_seconds": 6})},
        {"toml": QUADRATIC.replace("budget_seconds = 5", "budget_seconds = 6")},
        {"toml": QUADRATIC.replace("default = 2.5", "default = 2.0")},
    ],
)
def test_what_changes_a_score_is_in_the_digest(tmp_path: Path, change: dict[str, Any]) -> None:
    assert digest(tmp_path, "one", **change) != digest(tmp_path, "other")


def test_the_options_of_the_proposer_are_in_the_digest(tmp_path: Path) -> None:
    grids = [
        digest(tmp_path, f"n{points}", proposer="grid", advanced=Advanced(options={"points": points}))
        for points in (2, 3)
    ]
    assert grids[0] != grids[1]


@pytest.mark.parametrize("file", ["fit.py", "judge.py", "program.md"])
def test_every_file_of_the_environment_is_in_the_digest(tmp_path: Path, file: str) -> None:
    before = digest(tmp_path, "one")
    original = (tmp_path / "quad" / file).read_text() if (tmp_path / "quad" / file).exists() else ""
    asked = CampaignSpec.of(environment=str(tmp_path / "quad"), name="other", seed=3)
    (tmp_path / "quad" / file).write_text(original + "# changed\n")
    assert asked.open().campaign.digest != before


def test_a_campaign_that_is_made_anew_never_meets_the_results_of_the_old_one(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad")
    asked = CampaignSpec.of(environment=str(folder), name="n", seed=3)
    first = asked.open()
    shutil.rmtree(first.path)
    second = asked.open()
    assert first.campaign.digest == second.campaign.digest
    assert str(first.at(0)) != str(second.at(0))
