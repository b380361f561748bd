"""Options on the command line: those of a campaign, made from flows/spec/spec.py, and those of several verbs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_origin

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from pydantic.fields import FieldInfo

from flows.spec.spec import CERTIFY, GROUPS, OPTIONS, TABLES, declared, flag

F = TypeVar("F", bound=Callable[..., Any])
FLAGS = {name: field for name, field in OPTIONS.items() if name not in ("environment", *TABLES)}
"""The options of a campaign that are flags of `run` and `resume`: the environment is an argument, a table is --set."""
HEADINGS = {title: Group(title, sort_key=order) for order, title in enumerate(GROUPS)}


def of_field(name: str, field: FieldInfo, note: str = "", **more: Any) -> Parameter:
    """A declared option as a flag, a list by commas. (note: after its help)"""
    if get_origin(field.annotation) is list:
        more |= {"converter": _by_commas, "n_tokens": 1}
        note = f" Separated by commas.{note}"
    return Parameter(flag(name), help=f"{field.description}{note}", **more)


def _by_commas(_: Any, tokens: Any) -> list[str]:
    return [name for name in tokens[0].value.split(",") if name]


SET = (
    "key=value of environment.toml; of a campaign also an option of the proposer, rule or canceller such as "
    "proposer.points=5. Repeatable."
)
TRUST = "Agree to what the environment or the spec.toml asks for beyond its own folder. Remembered in the home."
Json = Annotated[bool, Parameter("--json", help="Print one JSON document on stdout and nothing else.")]
Server = Annotated[str | None, Parameter("--server", help="Prefect API, such as http://127.0.0.1:4200/api.")]
Settings = Annotated[list[str] | None, Parameter("--set", help=SET)]
Trust = Annotated[bool, Parameter("--trust", help=TRUST)]
Seed = Annotated[int | None, of_field("seed", OPTIONS["seed"], validator=Number(gte=0, lt=2**31))]
Isolation = Annotated[Literal["auto", "bwrap", "landlock", "none"], of_field("isolation", OPTIONS["isolation"])]
Unsandboxed = Annotated[bool, of_field("allow_unsandboxed", OPTIONS["allow_unsandboxed"])]
On = Annotated[list[str] | None, of_field("on", CERTIFY["on"])]
Runs = Annotated[int | None, of_field("runs", CERTIFY["runs"], validator=Number(gte=2, lte=100))]
Budget = Annotated[str, of_field("budget", CERTIFY["budget"])]


def campaign_options(*, resuming: bool) -> Callable[[F], F]:
    """Give a verb the options of a campaign; its `**options` holds those that were stated.

    Args:
        resuming: Accept the fixed options without showing them, since they may only repeat what they were.
    """

    def give(verb: F) -> F:
        signature = inspect.signature(verb)
        *own, rest = signature.parameters.values()
        names = [name for name in FLAGS if not (resuming and name == "name")]
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
        verb.__annotations__ |= {name: _annotation(name, resuming) for name in names}
        del verb.__annotations__[rest.name]
        vars(verb)["__signature__"] = signature.replace(parameters=[*own, *added])
        return verb

    return give


def _annotation(name: str, resuming: bool) -> Any:
    """An option's type and flag, as Cyclopts reads them."""
    field = FLAGS[name]
    said = declared(field)
    parameter = of_field(
        name,
        field,
        " Fixed." * bool(said.get("fixed")),
        group=HEADINGS.get(said.get("group", ""), "Parameters"),
        show=not (resuming and said.get("fixed")),
        negative=f"--no-{flag(name)[2:]}" if field.annotation is bool else "",
        show_default=False if resuming or field.default in (None, False, []) else str(field.default),
    )
    kind: Any = Literal[tuple(said["enum"])] if "enum" in said else field.annotation
    return Annotated[kind | None, parameter]
