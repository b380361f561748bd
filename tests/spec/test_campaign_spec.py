"""A specification in an environment on a machine: what cannot be run is refused, and what a campaign keeps."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from flows.spec.campaign_spec import CampaignSpec, differences
from tests.support.toy import QUADRATIC, quadratic

ONE_SLOT = {"device": "cpu", "cores": len(os.sched_getaffinity(0))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return quadratic(tmp_path / "quad")


def spec(folder: object, **options: Any) -> CampaignSpec:
    return CampaignSpec.of(**{"environment": str(folder), "name": "n", **options})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"proposer": "grid", "options": {"points": 0}}, "proposer grid: points: Input should"),
        ({"fallback": "llm"}, "fallback = 'llm' may fail itself"),
        ({"parallel": 2, "overrides": ONE_SLOT}, "parallel = 2 slots, but this machine has"),
        ({"hours": 0.0015, "rule": "greedy"}, "no time for the baseline: 0.0 s of 5.4 s used, it may take 7.0 s"),
        ({"until": "2001-01-01T00:00", "rule": "greedy"}, "it may take 7.0 s: raise hours or until"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(
    folder: Path, home: Path, options: dict[str, Any], why: str
) -> None:
    asked = spec(folder, **options)
    with pytest.raises(Refused, match=re.escape(why)):
        asked.check()
    assert not (home / "n").exists()


def test_a_night_too_short_to_prove_anything_is_refused(tmp_path: Path) -> None:
    """The baseline's three runs and the smallest certificate's six, a tenth over, have to fit in, with start-ups."""
    drawing = QUADRATIC.replace("deterministic = true", "deterministic = false")
    folder, need = quadratic(tmp_path / "quad", toml=drawing), (3 + 1.1 * 6) * (5 + 2)
    why = "it may take 67 s, of which 46 s are for the certificate: raise hours or until, or use rule = greedy"
    with pytest.raises(Refused, match=why):
        spec(folder, hours=(need - 1) / 3600).check()
    spec(folder, hours=(need + 1) / 3600).check()
    spec(folder, hours=13 / 3600, rule="greedy").check()


def test_edits_without_a_sandbox_are_refused_unless_a_person_allows_them(folder: Path) -> None:
    mine = {"proposer": "agent", "options": {"command": ["true"]}, "rule": "greedy", "isolation": "none"}
    with pytest.raises(Refused, match="pass --allow-unsandboxed"):
        spec(folder, **mine).check()
    spec(folder, **mine, allow_unsandboxed=True).check()
    with pytest.raises(Refused, match="approval = 'code' at isolation none"):
        spec(folder, **mine, allow_unsandboxed=True, approval="code").check()


def test_what_has_changed_or_is_over_does_not_keep_a_campaign_from_being_resumed(folder: Path) -> None:
    spec(folder).open()
    (folder / "environment.toml").write_text(QUADRATIC.replace("low = -3.0", "low = 9.0"))
    spec(folder, until="2001-01-01T00:00").check()
    with pytest.raises(Refused, match="low"):
        spec(folder, name="another").check()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"trials": 3, "hours": 1.0, "tracking": "off", "until": "07:30", "patience": 3}, []),
        ({"seed": 5}, [("seed", 4, 5)]),
        ({"proposer": "grid"}, [("proposer", "tpe", "grid")]),
        ({"overrides": {"device": "cpu"}}, [("overrides", {}, {"device": "cpu"})]),
        ({"environment": "cartpole"}, [("environment", "QUAD", "cartpole")]),
    ],
)
def test_what_changes_a_score_is_a_difference_and_a_guard_is_none(
    folder: Path, change: dict[str, Any], found: list[tuple[str, object, object]]
) -> None:
    ledger = spec(folder, seed=4).open()
    expected = [(what, str(folder) if was == "QUAD" else was, asked) for what, was, asked in found]
    assert differences(ledger, spec(folder, **change)) == expected
    if found:
        with pytest.raises(Refused, match=f"has {found[0][0]} = .* so it is fixed"):
            spec(folder, **change).open()
