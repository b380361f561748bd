"""The faces of the options: the forms in the Prefect UI, the command line, and the page of options follow from them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from flows.campaign import campaign
from flows.certify import certify
from flows.cli import reference
from flows.cli.app import app
from flows.spec import form
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.spec import CERTIFY, GROUPS, OPTIONS, declared, flag
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    from prefect.utilities.schema_tools import validation
else:
    validation = LazyModule("prefect.utilities.schema_tools.validation")

FORM = campaign.parameters.model_dump()
MODELS = [FORM, *(FORM["definitions"][name.capitalize()] for name in ("advanced", *GROUPS))]
PAGE = Path(__file__).parents[2] / "docs/options.md"


def test_the_form_has_first_what_people_change_first_and_every_option_once() -> None:
    assert list(FORM["properties"]) == [*form.FIRST, "advanced"]
    named = [name for group in MODELS for name in group["properties"]]
    assert sorted(named) == sorted([*OPTIONS, "advanced", *GROUPS])


def test_an_option_is_shown_in_the_form_as_it_is_declared() -> None:
    for name, field in OPTIONS.items():
        (shown,) = [group["properties"][name] for group in MODELS if name in group["properties"]]
        empty = "" if name in ("name", "until") else None
        assert shown["description"] == field.description
        assert shown["title"][0].isupper() and "position" in shown, "a database may forget the order"
        assert shown.get("enum") == declared(field).get("enum", shown.get("enum"))
        assert field.is_required() or shown.get("default") == (empty if field.default is None else field.default)


def test_the_flow_takes_every_option_by_itself_and_what_the_form_leaves_empty() -> None:
    assert set(inspect.signature(campaign.fn).parameters) == {*OPTIONS, "advanced"}
    left = {"environment": "cartpole", "until": "", "seed": None, "advanced": {"patience": None, "options": {}}}
    assert CampaignSpec.of(**left, name="n") == CampaignSpec.of(environment="cartpole", name="n")
    validation.validate({**left, "name": ""}, FORM, raise_on_error=True)


def test_an_option_of_certify_is_in_its_form_as_it_is_declared() -> None:
    shown = certify.parameters.model_dump()["properties"]
    assert list(shown) == ["name", *CERTIFY]
    for name, field in CERTIFY.items():
        assert (shown[name]["description"], shown[name].get("default")) == (field.description, field.default)
    flags = {argument.name for argument in app["certify"].assemble_argument_collection()}
    assert {flag(name) for name in CERTIFY} <= flags


def test_the_page_of_options_is_up_to_date() -> None:
    assert PAGE.read_text() == reference.page(), "run: python -m flows.cli.reference > docs/options.md"
