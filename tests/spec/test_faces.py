"""The faces of the options: the forms in the Prefect UI, the command line, and the page of options follow from them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.utilities.callables import parameter_schema

from environments.plugins import Refused
from flows.campaign import campaign
from flows.certify import certify
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.spec import OPTIONS, Spec, declared
from tests.support.lazy import LazyModule
from tests.support.prefect_api import prefect_at

validation = LazyModule("prefect.utilities.schema_tools.validation")
FORM = parameter_schema(campaign).model_dump()
CHECKOUT = Path(__file__).parents[2]


def test_the_form_has_every_option_as_it_is_declared_and_none_of_two_types() -> None:
    assert list(FORM["properties"]) == list(Spec.model_fields)
    shown = {**FORM["properties"], **FORM["definitions"]["Advanced"]["properties"]}
    for name, field in OPTIONS.items():
        assert shown[name]["description"] == field.description and "anyOf" not in shown[name]
        assert shown[name]["title"][0].isupper() and "position" in shown[name], "a database may forget the order"
        assert shown[name].get("enum") == declared(field).get("enum", shown[name].get("enum"))
        assert field.is_required() or (shown[name].get("default") or None) == (field.default or None)


def test_the_flow_takes_every_option_by_itself_and_what_the_form_leaves_empty() -> None:
    assert set(inspect.signature(campaign.fn).parameters) == {*OPTIONS, "advanced"}
    left = {"environment": "cartpole", "until": "", "seed": None, "advanced": {"patience": None, "options": {}}}
    assert CampaignSpec.of(**left, name="n") == CampaignSpec.of(environment="cartpole", name="n")
    validation.validate({**left, "name": ""}, FORM, raise_on_error=True)


def test_the_page_of_options_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "options.md"
    command = Path(sys.executable).parent / "cyclopts", "generate-docs", "flows/cli/app.py:app", "--output", made
    subprocess.run(command, cwd=CHECKOUT, check=True)
    assert (CHECKOUT / "docs/options.md").read_text() == made.read_text(), (
        "as this command, with --output docs/options.md"
    )


def test_a_refused_run_ends_as_failed_with_the_sentence(server: str) -> None:
    refused = {
        "Did you mean 'cartpole'": (campaign, {"environment": "cartpol"}),
        "until: must be a time of day": (campaign, {"environment": "cartpole", "until": "25:00"}),
        "unknown campaign 'none-1'": (certify, {"name": "none-1"}),
    }
    with prefect_at(server):
        for sentence, (flow, parameters) in refused.items():
            state = flow(**parameters, return_state=True)  # type: ignore[call-overload]
            assert (state.is_failed(), state.name) == (True, "Failed")
            with pytest.raises(Refused, match=sentence) as again:
                state.result()
            assert state.message == str(again.value)
