"""--fidelity: what it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from flows.spec.campaign_spec import CampaignSpec
from tasks.store.ledger import SHORT
from tests.support.toy import quadratic


def spec(folder: Path, fidelity: object, name: str = "night", **more: Any) -> CampaignSpec:
    advanced = {"fidelity": fidelity, **more.pop("advanced", {})}
    return CampaignSpec.of(environment=str(folder), name=name, tracking="off", seed=1, advanced=advanced, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return quadratic(tmp_path / "quad")


@pytest.mark.parametrize(
    ("stated", "stored"), [("none", "none"), (0.3, "0.3"), ("0.30", "0.3"), (".25", "0.25"), ("3e-1", "0.3")]
)
def test_a_share_is_taken_as_a_number_or_a_text(folder: Path, stated: object, stored: str) -> None:
    assert spec(folder, stated).advanced.fidelity == stored


@pytest.mark.parametrize("stated", [0, 1, 1.5, -0.3, 30, "30%", "nan", "inf", "some", "", "auto", None, True, [0.3]])
def test_anything_else_is_refused_with_the_range(folder: Path, stated: object) -> None:
    with pytest.raises(Refused, match=r"fidelity.*none, or a share"):
        spec(folder, stated)


def test_without_it_every_trial_runs_in_full(folder: Path) -> None:
    ledger = spec(folder, "none").open()
    assert ledger.fidelity.share == 1 and not (ledger.path / SHORT).exists()


def test_a_stated_share_is_what_the_campaign_has_and_keeps(folder: Path) -> None:
    assert spec(folder, 0.3).open().fidelity.share == 0.3
    assert spec(folder, "0.3").open().fidelity.share == 0.3
    for other in ("none", 0.5):
        with pytest.raises(Refused, match="fidelity"):
            spec(folder, other).open()


def test_a_proposer_that_cannot_rank_is_refused_before_anything_starts(folder: Path) -> None:
    with pytest.raises(Refused, match=r"learned cannot search .*proposers.md"):
        spec(folder, 0.3, proposer="learned").check()
    with pytest.raises(Refused, match="learned cannot search"):
        spec(folder, 0.3, advanced={"fallback": "learned"}).check()
    spec(folder, 0.3).check()
