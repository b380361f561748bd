"""Options on the command line: those of a campaign, made from flows/spec/spec.py, and those of several verbs."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any, Literal, get_origin

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from pydantic.fields import FieldInfo

from flows.spec.spec import CERTIFY, GROUPS, OPTIONS, TABLES, declared, flag

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


def campaign_options(*, resuming: bool) -> Any:
    """The type of a verb's parameter that stands for the options of a campaign: an object that has them all, None where
    they were not stated.

    Args:
        resuming: Accept the fixed options without showing them, since they may only repeat what they were.
    """
    names = [name for name in FLAGS if not (resuming and name == "name")]
    fields = [(name, _annotation(name, resuming), None) for name in names]
    # Of a class without a module of its own Cyclopts takes it that it is Python's, and none of its fields is a flag.
    return Parameter("*")(make_dataclass("CampaignOptions", fields, namespace={"__module__": __name__}))


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
