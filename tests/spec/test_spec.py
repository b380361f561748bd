"""What a campaign may be asked for: each option is declared once; what is wrong is refused by file and key."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from flows.cli.arguments import stated
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.spec import FIXED, Advanced, next_time
from tasks.store.ledger import Settings
from tests.support.toy import quadratic


def spec(**options: Any) -> CampaignSpec:
    return CampaignSpec.of(**{"environment": "cartpole", "name": "n", **options})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"trials": 0}, "trials: Input should be greater than or equal to 1, got 0"),
        ({"until": "25:00"}, "until: must be a time of day such as 07:30, or an ISO date and time, got '25:00'"),
        ({"advanced": {"rulee": "greedy"}}, "rulee: unknown key. Did you mean 'rule'?"),
        ({"advanced": {"options": {"a": [{"b": None}]}}}, "advanced.options: null is no value: leave the key out"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_key(options: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=re.escape(f"campaign: {why}")):
        spec(**options)


def test_a_name_and_an_address_with_a_password_are_refused_without_showing_it() -> None:
    with pytest.raises(Refused, match="campaign name 'a b': 1 to 64 of"):
        spec(name="a b")
    with pytest.raises(Refused, match="tracking holds a password") as refused:
        spec(tracking="http://me:hunter2@server")
    assert "hunter2" not in str(refused.value)


def test_the_fixed_options_are_those_that_a_campaign_stores() -> None:
    assert set(FIXED) == {"environment", *Settings.model_fields}


def test_an_option_by_itself_or_under_advanced_is_the_same_and_one_left_empty_has_its_default() -> None:
    assert spec(rule="greedy", patience=3) == spec(advanced={"rule": "greedy", "patience": 3})
    assert spec() == spec(rule=None, seed=None, until="", tracking="", advanced={"patience": None, "options": {}})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rule": "certify", "replicates": 2, "rule_options": {"reruns": 2}, "ablation": True},
        {"advanced": Advanced(overrides={"title": 'a "quoted" \\ title\nof two lines', "fixed": {"a": 1, "b": "x"}})},
    ],
)
def test_the_file_of_a_specification_makes_the_same_specification(tmp_path: Path, options: dict[str, Any]) -> None:
    asked = spec(environment=str(quadratic(tmp_path / "quad")), **options)
    (tmp_path / "spec.toml").write_text(asked.toml())
    assert CampaignSpec.of(**stated(str(tmp_path / "spec.toml"), settings=[])) == asked


def test_the_command_line_is_laid_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "night.toml"
    file.write_text(
        'environment = "cartpole"\ntrials = 3\nhours = 1\ncrash_share = 0.5\n[advanced]\npatience = 2\n'
        'rule = "greedy"\n[advanced.overrides]\ndevice = "cuda"\nbudget_seconds = 9\n'
        "[advanced.cancel_options]\nbest = 0.5\n"
    )
    settings = ["device=cpu", "proposer.startup=3"]
    assert spec(**stated(str(file), trials=9, hours=None, patience=4, rule="greedy", cancel="none", settings=settings)) == spec(
        trials=9, hours=1, rule="greedy", cancel="none", patience=4, crash_share=0.5, options={"startup": 3},
        overrides={"device": "cpu", "budget_seconds": 9},
    )  # fmt: skip


@pytest.fixture
def berlin() -> Iterator[None]:
    """The clocks of Berlin, spelt out so that no table of time zones is needed."""
    with pytest.MonkeyPatch.context() as there:
        there.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_a_time_of_day_is_what_the_clock_will_show_though_clocks_may_change() -> None:
    now = datetime.datetime.fromisoformat("2031-10-25T22:00:00+02:00")
    assert next_time("07:30", now).isoformat() == "2031-10-26T07:30:00+01:00"
    assert next_time("2031-05-06T07:30:00Z", now).timestamp() == 1935819000.0
