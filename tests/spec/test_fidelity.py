"""--fidelity: what it takes, and what auto makes of a calibration."""

from __future__ import annotations

import random
import shlex
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from environments.score import Score
from flows.cli.set_option import parse_settings
from flows.spec.campaign_spec import CampaignSpec
from tasks.store import calibration, short_runs
from tasks.store.calibration import Measured
from tasks.store.ledger import SHORT, Ledger, machine
from tasks.store.short_runs import MeasuredPoint, ShortRuns
from tasks.trial import Run
from tests.support.toy import quadratic


def spec(folder: Path, fidelity: object, name: str = "night", **more: Any) -> CampaignSpec:
    advanced = {"fidelity": fidelity, **more.pop("advanced", {})}
    return CampaignSpec.of(environment=str(folder), name=name, tracking="off", seed=1, advanced=advanced, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return quadratic(tmp_path / "quad")


def measured(value: float) -> Measured:
    return Measured(Run("0001/trials/1", 1, 1.0, "finished"), Score(value, n=1))


def calibrated(home: Path, ledger: Ledger, share: float, noise: float, points: int = 20) -> ShortRuns:
    """A stored calibration for a campaign's environment, whose short scores are whole ones plus noise."""
    draws = random.Random(2)
    digest = calibration.digest(ledger.path, ledger.environment)
    whole = ShortRuns(ledger.environment.name, digest, machine(), share, 0.0)
    for _ in range(points):
        full = draws.gauss(0, 1)
        short = full + noise * draws.gauss(0, 1)
        whole = short_runs.add(home, whole, MeasuredPoint({"x": full}, measured(short), measured(full)))
    return whole


@pytest.mark.parametrize(
    ("stated", "stored"),
    [("none", "none"), ("auto", "auto"), (0.3, "0.3"), ("0.30", "0.3"), (".25", "0.25"), ("3e-1", "0.3")],
)
def test_a_share_is_taken_as_a_number_or_a_text(folder: Path, stated: object, stored: str) -> None:
    assert spec(folder, stated).advanced.fidelity == stored


@pytest.mark.parametrize("stated", [0, 1, 1.5, -0.3, 30, "30%", "nan", "inf", "some", "", None, True, [0.3]])
def test_anything_else_is_refused_with_the_range(folder: Path, stated: object) -> None:
    with pytest.raises(Refused, match=r"fidelity.*none, auto, or a share"):
        spec(folder, stated)


def test_without_it_every_trial_runs_in_full(folder: Path) -> None:
    ledger = spec(folder, "none").open()
    assert ledger.fidelity.share == 1 and not (ledger.path / SHORT).exists()


def test_a_stated_share_is_what_the_campaign_has_and_keeps(folder: Path) -> None:
    assert spec(folder, 0.3).open().fidelity.share == 0.3
    assert spec(folder, "0.3").open().fidelity.share == 0.3
    for other in ("none", "auto", 0.5):
        with pytest.raises(Refused, match="fidelity"):
            spec(folder, other).open()


def test_auto_without_a_calibration_names_the_command_that_measures(folder: Path) -> None:
    overrides = {"budget_seconds": 4, "deterministic": False, "title": "a b"}
    found = spec(folder, "auto", advanced={"overrides": overrides}).open().fidelity
    assert found.share == 1
    typed = shlex.split(found.words.split("`")[1])
    assert typed[:5] == ["nightshift", "calibrate", str(folder), "--fidelity", "0.3"]
    assert parse_settings(typed[6::2]).overrides == overrides


def test_auto_uses_a_share_that_ranks_as_whole_runs_do(folder: Path, home: Path) -> None:
    calibrated(home, spec(folder, "none", "other").open(), 0.3, noise=0.3)
    calibrated(home, spec(folder, "none", "other").open(), 0.1, noise=5.0)
    found = spec(folder, "auto").open().fidelity
    assert found.share == 0.3 and "95 % interval" in found.words and "30%" in found.words
    events = [event for event in Ledger.open("night").events() if event["event"] == "fidelity"]
    assert [(event["share"], event["words"]) for event in events] == [(0.3, found.words)]


def test_auto_does_without_where_short_runs_rank_otherwise_and_says_so(folder: Path, home: Path) -> None:
    calibrated(home, spec(folder, "none", "other").open(), 0.3, noise=5.0)
    found = spec(folder, "auto").open().fidelity
    assert found.share == 1 and "pay from 0.7 on" in found.words


def test_a_calibration_of_another_budget_or_machine_is_none_of_this_campaigns(folder: Path, home: Path) -> None:
    made = calibrated(home, spec(folder, "none", "other").open(), 0.3, noise=0.1)
    assert spec(folder, "auto", "shorter", advanced={"overrides": {"budget_seconds": 4}}).open().fidelity.share == 1
    path = made.path(home)
    path.rename(path.with_name(path.name.replace(made.machine, "another")))
    assert spec(folder, "auto").open().fidelity.share == 1


def test_what_auto_chose_stays_whatever_is_measured_later(folder: Path, home: Path) -> None:
    ledger = spec(folder, "auto").open()
    calibrated(home, ledger, 0.3, noise=0.1)
    assert spec(folder, "auto").open().fidelity.share == 1
    (ledger.path / SHORT).unlink()  # as after a kill before anything ran
    assert spec(folder, "auto").open().fidelity.share == 0.3


@pytest.mark.parametrize("more", [{"launch": "gpu-pair"}, {"proposer": "learned"}])
def test_auto_says_what_stands_against_short_budgets(folder: Path, home: Path, more: dict[str, str]) -> None:
    calibrated(home, spec(folder, "none", "other").open(), 0.3, noise=0.1)
    found = spec(folder, "auto", **more).open().fidelity
    assert found.share == 1 and ("elsewhere" in found.words or "cannot search" in found.words)


def test_a_proposer_that_cannot_rank_is_refused_before_anything_starts(folder: Path) -> None:
    with pytest.raises(Refused, match=r"learned cannot search .*proposers.md"):
        spec(folder, 0.3, proposer="learned").check()
    with pytest.raises(Refused, match="learned cannot search"):
        spec(folder, 0.3, advanced={"fallback": "learned"}).check()
    spec(folder, 0.3).check()
