"""The form of a campaign: where an option stands does not matter, and earlier forms and spec files are read alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from environments.plugins import Refused
from flows.campaign import campaign
from flows.certify import certify
from flows.cli.stated import stated
from flows.rerun import rerun
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.form import parameters, spread
from tests.support.lazy import LazyModule
from tests.support.toy import quadratic

if TYPE_CHECKING:
    from prefect.utilities.schema_tools import validation
else:
    validation = LazyModule("prefect.utilities.schema_tools.validation")

SCHEMA = campaign.parameters.model_dump()


def spec(**asked: Any) -> CampaignSpec:
    return CampaignSpec.of(**{"name": "n", "environment": "cartpole", **asked})


@pytest.mark.parametrize(
    ("flat", "grouped"),
    [
        ({"rule": "greedy"}, {"decisions": {"rule": "greedy"}}),
        ({"seed": 4, "tracking": "off"}, {"search": {"seed": 4}, "execution": {"tracking": "off"}}),
        ({"advanced": {"patience": 3}}, {"limits": {"patience": 3, "crash_share": 0.8}}),
        ({"advanced": {"overrides": {"device": "cpu"}}}, {"overrides": {"device": "cpu"}, "models": {}}),
        ({"advanced": {"options": {"points": 5}}}, {"search": {"options": {"points": 5}}}),
        ({"replicates": 2}, {"replicates": 2}),
        ({}, {"search": {"seed": None}, "limits": {"patience": None}, "execution": {"tracking": ""}}),
    ],
)
def test_an_option_by_itself_under_advanced_or_in_its_group_is_the_same(
    flat: dict[str, Any], grouped: dict[str, Any]
) -> None:
    assert spec(**flat) == spec(advanced=grouped)
    # The flow's function has a default for what the form does not show by itself.
    assert spec(**flat) == spec(rule="certify", seed=None, tracking=None, replicates=1, advanced=grouped)


def test_what_a_schedule_keeps_as_text_is_read() -> None:
    kept = {"__prefect_kind": "json", "value": json.dumps({"decisions": {"rule": "race"}, "patience": 2})}
    assert (spec(advanced=kept).rule, spec(advanced=kept).advanced.patience) == ("race", 2)
    assert spec(advanced={"search": {"options": {"__prefect_kind": "json"}}}) == spec()
    with pytest.raises(Refused, match="is not JSON"):
        spec(advanced={"__prefect_kind": "json", "value": "{nope"})


def test_the_whole_of_an_earlier_form_is_taken() -> None:
    earlier = {
        "environment": "cartpole", "name": None, "proposer": "tpe", "rule": "certify", "cancel": "curve",
        "replicates": 1, "trials": 20, "hours": 8.0, "until": None, "parallel": 1, "launch": "here", "seed": None,
        "tracking": None, "advanced": {
            "patience": None, "crash_share": 0.8, "isolation": "auto", "allow_unsandboxed": False, "looks": "one",
            "ablation": False, "fallback": "tpe", "approval": "none", "approval_minutes": 60.0, "max_usd": None,
            "max_tokens": None, "learn_from": [], "traces": False, "rule_options": {}, "cancel_options": {},
            "options": {}, "overrides": {},
        },
    }  # fmt: skip
    assert CampaignSpec.of(**{**earlier, "name": "n"}) == spec()
    validation.validate({**earlier, "name": "", "until": ""}, SCHEMA, raise_on_error=True)


@pytest.mark.parametrize("asked", [{}, {"until": "07:30", "seed": 3, "advanced": {"patience": 4, "max_usd": 0}}])
def test_a_specification_runs_once_more_by_the_parameters_that_a_server_takes(asked: dict[str, Any]) -> None:
    before = spec(**asked)
    validation.validate(parameters(before), SCHEMA, raise_on_error=True)
    assert CampaignSpec.of(**json.loads(json.dumps(parameters(before)))) == before


def test_a_server_refuses_what_is_no_choice_in_a_group() -> None:
    for asked in ({"decisions": {"rule": "greddy"}}, {"limits": {"patience": 0}}, {"search": {"seed": "x"}}):
        with pytest.raises(validation.ValidationError):
            validation.validate({"environment": "cartpole", "advanced": asked}, SCHEMA, raise_on_error=True)


def test_a_mistake_in_a_group_is_refused_with_the_near_miss() -> None:
    for asked in ({"decisions": {"rulee": "race"}}, {"patiense": 3}, {"limits": 3}, 3):
        with pytest.raises(Refused, match="campaign: advanced"):
            spec(advanced=asked)


def test_a_spec_file_cannot_hide_in_a_group_what_a_person_is_asked_about(tmp_path: Path) -> None:
    folder, file = quadratic(tmp_path / "quad"), tmp_path / "spec.toml"
    file.write_text(f'environment = "{folder}"\n[advanced.execution]\nisolation = "none"\ntracking = "http://evil"\n')
    with pytest.raises(Refused, match=r"without a sandbox.*evil"):
        stated(str(file), settings=[])


def test_an_option_of_the_command_line_counts_before_a_group_of_a_spec_file(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('environment = "cartpole"\n[advanced.decisions]\nrule = "race"\n')
    assert spec(**stated(str(file), settings=[])).rule == "race"
    assert spec(**stated(str(file), settings=[], rule="greedy")).rule == "greedy"


def test_nothing_is_dropped_that_is_not_an_empty_option() -> None:
    assert spread({"environment": "", "proposer": "", "until": "", "nonsense": None}) == {
        "environment": "", "proposer": "", "nonsense": None, "advanced": {},
    }  # fmt: skip


@pytest.mark.parametrize("flow", [certify, rerun], ids=["certify", "rerun"])
def test_every_field_of_the_other_forms_has_a_title_and_says_what_it_takes(flow: Any) -> None:
    for name, shown in flow.parameters.model_dump()["properties"].items():
        assert shown["title"][0].isupper() and shown["description"].endswith("."), name


def test_the_number_of_a_trial_is_bounded_in_the_form_of_a_rerun() -> None:
    schema = rerun.parameters.model_dump()
    validation.validate({"name": "n", "trial": 0}, schema, raise_on_error=True)
    with pytest.raises(validation.ValidationError):
        validation.validate({"name": "n", "trial": -1}, schema, raise_on_error=True)
