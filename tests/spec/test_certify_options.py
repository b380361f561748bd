"""The options of `certify` are declared once: flow, form, command line and manual follow."""

from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

import pytest

from flows.certify import certify
from flows.cli import deciding, reference
from flows.spec.certify_options import CERTIFY

FORM = certify.parameters.model_dump()["properties"]


@pytest.mark.parametrize("name", CERTIFY)
def test_an_option_of_certify_is_in_the_form_and_on_the_command_line_as_it_is_declared(name: str) -> None:
    each = CERTIFY[name]
    assert FORM[name]["description"] == each.option.help and FORM[name].get("default") == each.default
    flow = get_type_hints(certify.fn, include_extras=True)[name]
    assert get_args(flow)[0] == each.kind
    assert inspect.signature(certify.fn).parameters[name].default == each.default
    _, flag = get_args(get_type_hints(deciding.certify, include_extras=True)[name])
    assert flag.name == (each.flag,) and flag.help.startswith(each.option.help)


def test_certify_has_no_option_that_is_not_declared() -> None:
    assert list(inspect.signature(certify.fn).parameters) == ["name", *CERTIFY]
    assert set(inspect.signature(deciding.certify).parameters) == {"campaign", *CERTIFY, "trust", "server", "json"}


def test_the_manual_has_the_options_as_they_are_declared() -> None:
    page = reference.PAGE.read_text()
    assert page == reference.updated(page), "run python -m flows.cli.reference"
    assert all(f"`{each.flag}` | {each.option.help}" in page for each in CERTIFY.values())
