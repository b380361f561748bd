"""Options on the command line: those of a campaign, made from flows/spec/options.py, and those of several verbs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_origin

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from flows.spec import options
from flows.spec.certify_options import CERTIFY
from flows.spec.options import AdvancedOptions, CampaignOptions, Declared, PersonalOptions

F = TypeVar("F", bound=Callable[..., Any])
FLAGS = {
    each.name: each
    for each in (*options.declared(CampaignOptions), *options.declared(AdvancedOptions))
    if each.name != "environment" and get_origin(each.kind) is not dict  # the verb's argument; given by --set
}
"""The options of a campaign that are flags of `run` and `resume`."""
PERSONAL = {each.name: each for each in options.declared(PersonalOptions)}
GROUPS = {
    name: Group(name, sort_key=order)
    for order, name in enumerate((options.SEARCH, options.DECISIONS, options.LIMITS, options.EXECUTION, options.MODELS))
}


def switch(flag: str | list[str], help: str, negative: str = "") -> Parameter:
    """A flag without a value."""
    return Parameter(flag, help=help, negative=negative, show_default=False)


Json = Annotated[bool, switch("--json", "Print one JSON document on stdout and nothing else.")]
Server = Annotated[str | None, Parameter("--server", help="Prefect API, such as http://127.0.0.1:4200/api.")]
Settings = Annotated[
    list[str] | None,
    Parameter(
        "--set",
        negative="",
        help="key=value of environment.toml; of a campaign also an option of the proposer, rule or canceller such as "
        "proposer.points=5. Repeatable.",
    ),
]
Detach = Annotated[bool, switch("--detach", "Return once the campaign has started; it continues in the background.")]
Trust = Annotated[bool, switch("--trust", PERSONAL["trust"].option.help)]
Comment = Annotated[str, Parameter("--comment", help="Reason; the proposer reads it.")]


def of_campaign(name: str, within: Number | None = None) -> Parameter:
    """An option of a campaign for another verb that takes it too, which checks the number itself."""
    return Parameter(FLAGS[name].flag, help=FLAGS[name].option.help, validator=within)


def of_certify(name: str) -> Parameter:
    """An option of `certify`."""
    each = CERTIFY[name]
    commas = " Separated by commas." * (get_origin(each.kind) is list)
    return Parameter(each.flag, help=each.option.help + commas, show_default=False)


Seed = Annotated[int | None, of_campaign("seed", Number(gte=0, lt=2**31))]
Isolation = Annotated[Literal["auto", "bwrap", "landlock", "none"], of_campaign("isolation")]
Unsandboxed = Annotated[bool, switch("--allow-unsandboxed", FLAGS["allow_unsandboxed"].option.help)]


def campaign_options(*, resuming: bool) -> Callable[[F], F]:
    """Give a verb the options of a campaign; its `**options` holds those that were stated.

    Args:
        resuming: Accept the fixed options without showing them, since they may only repeat what they were.
    """

    def give(verb: F) -> F:
        signature = inspect.signature(verb)
        *own, rest = signature.parameters.values()
        assert rest.kind is rest.VAR_KEYWORD, f"{verb.__name__} takes no **options"
        added = []
        for each in FLAGS.values():
            if resuming and each.name == "name":
                continue
            verb.__annotations__[each.name] = _annotation(each, resuming)
            added.append(inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None))
        del verb.__annotations__[rest.name]
        vars(verb)["__signature__"] = signature.replace(parameters=[*own, *added])
        return verb

    return give


def _annotation(each: Declared, resuming: bool) -> Any:
    """An option's type and flag, as Cyclopts reads them."""
    kind = Literal[each.option.choices] if each.option.choices else each.kind
    listed = get_origin(kind) is list
    flag = Parameter(
        each.flag,
        help=each.option.help + " Separated by commas." * listed,
        group=GROUPS.get(each.option.group, "Parameters"),
        show=not (resuming and each.option.fixed),
        show_default=False if resuming else each.shown_default or False,
        converter=_by_commas if listed else None,
        n_tokens=1 if listed else None,
        negative=None if kind is bool else "",
    )
    return Annotated[kind | None, flag]


def _by_commas(_: Any, tokens: Any) -> list[str]:
    return [name for name in tokens[0].value.split(",") if name]
