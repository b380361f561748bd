"""Options are declared once: the form, the checks, the command line, the manual and the resume check follow."""

from __future__ import annotations

import inspect
import json
from typing import Any, get_origin

import pytest
from cyclopts import CycloptsError

import environments
from environments import plugins
from flows.campaign import campaign
from flows.cli import reference
from flows.cli.app import app
from flows.cli.options import FLAGS
from flows.spec import form, options
from flows.spec.advanced import Advanced
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.options import FIXED, AdvancedOptions, CampaignOptions, declared
from tasks.certifying.group_design import Looks
from tasks.store.ledger import NAME, Settings

FORM = campaign.parameters.model_dump()
GROUPS = ("Advanced", *(key.capitalize() for key in form.GROUPS))
MODELS = [FORM["definitions"][group] for group in GROUPS]
ALL = {each.name: each for each in (*declared(CampaignOptions), *declared(AdvancedOptions))}


def parsed(*arguments: str) -> dict[str, Any]:
    _, bound, _ = app.parse_args(list(arguments), exit_on_error=False, print_error=False)
    return bound.arguments


def test_the_flow_and_the_specification_take_the_declared_options_and_no_other() -> None:
    assert [each.name for each in declared(CampaignOptions)] == list(CampaignSpec.model_fields)[:-1]
    assert [each.name for each in declared(AdvancedOptions)] == list(Advanced.model_fields)
    assert list(inspect.signature(campaign.fn).parameters) == list(CampaignSpec.model_fields)


def test_the_form_has_first_what_people_change_first_and_every_option_once() -> None:
    assert list(FORM["properties"]) == [*options.FIRST, "advanced"]
    named = [name for group in GROUPS for name in FORM["definitions"][group]["properties"] if name not in form.GROUPS]
    assert sorted([*options.FIRST, *named]) == sorted(ALL)


@pytest.mark.parametrize("name", ALL)
def test_an_option_is_shown_in_the_form_as_it_is_declared(name: str) -> None:
    (shown,) = [group["properties"][name] for group in (FORM, *MODELS) if name in group["properties"]]
    spelled = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
    option, empty = ALL[name].option, "" if name in ("name", "until") else None
    assert shown["description"] == option.help
    assert shown["title"] == (option.title or name.capitalize())
    assert {key: shown.get(spelled[key]) for key in option.bounds} == option.bounds
    assert not option.choices or shown["enum"] == list(option.choices)
    assert shown.get("default", None) == (ALL[name].default if ALL[name].default is not None else empty)
    assert "position" in shown, "a database may forget the order"


def test_nothing_in_the_form_is_none() -> None:
    assert "null" not in json.dumps(FORM)


def test_the_fixed_options_are_those_that_a_campaign_stores() -> None:
    assert set(FIXED) == {"environment", *Settings.model_fields}


def test_what_is_listed_without_importing_is_what_is_found_by_importing() -> None:
    for folder in ("proposers", "rules", "cancellers"):
        assert options.plugins(f"tasks/{folder}") == plugins.names(f"tasks.{folder}")
    assert tuple(environments.bundled()) == options.ENVIRONMENTS
    assert ALL["name"].option.schema["pattern"] == f"^$|^{NAME.pattern}$"
    assert ALL["looks"].kind == Looks


def test_every_option_is_a_flag_of_run_and_resume_or_given_by_set() -> None:
    by_set = {name for name, each in ALL.items() if get_origin(each.kind) is dict}
    assert set(FLAGS) == set(ALL) - by_set - {"environment"}
    for verb in ("run", "resume"):
        taken = {flag for argument in app[verb].assemble_argument_collection() for flag in argument.names}
        assert {each.flag for each in FLAGS.values()} - {"--name"} <= taken


def test_a_verb_receives_the_options_that_were_stated_and_no_others() -> None:
    stated = parsed("run", "cartpole", "--trials", "3", "--learn-from", "a,b", "--no-traces", "--hours", "0.5")
    assert stated == {"environment": "cartpole", "trials": 3, "learn_from": ["a", "b"], "traces": False, "hours": 0.5}
    assert parsed("resume", "--rule", "race", "--learn-from", "") == {"rule": "race", "learn_from": []}


def test_a_choice_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(CycloptsError) as refused:
        parsed("run", "cartpole", "--rule", "greddy")
    assert all(name in str(refused.value) for name in ("--rule", "certify", "greedy", "race"))


def test_the_table_in_the_manual_is_up_to_date() -> None:
    page = reference.PAGE.read_text()
    assert reference.updated(page) == page, "run: python -m flows.cli.reference"
