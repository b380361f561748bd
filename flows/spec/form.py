"""The form of a campaign in the Prefect UI: what people change first, the rest in groups under `advanced`.

Prefect makes a form from a flow's signature, so the flow shows another one than its function has. The function takes
every option of a campaign by itself, as the forms of earlier versions had them: schedules keep those. `spread` puts
each option where the specification has it. Nothing in the form is "None": a text without a default is empty, and a
number without one may be left empty.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model

from flows.spec.advanced import parsed
from flows.spec.options import (
    DECISIONS,
    EXECUTION,
    FIRST,
    LIMITS,
    MODELS,
    SEARCH,
    AdvancedOptions,
    CampaignOptions,
    Declared,
    declared,
)

F = TypeVar("F")
ADVANCED = "advanced"
GROUPS = {
    "search": (SEARCH, "How the next trial is chosen."),
    "decisions": (DECISIONS, "What counts as better, and when a trial is stopped early."),
    "limits": (LIMITS, "When the campaign ends besides."),
    "execution": (EXECUTION, "Where and how trials run."),
    "models": (MODELS, "What a proposer with a model may do and spend."),
}
"""The groups under `advanced`: title and description, by key."""
OPTIONS = {each.name: each for each in (*declared(CampaignOptions), *declared(AdvancedOptions))}
FLAT = frozenset(each.name for each in declared(CampaignOptions))
"""Options that the specification has at its top."""


def form(flow: F) -> F:
    """Have a flow of a campaign show the form."""
    from prefect.utilities.callables import parameter_schema

    shown = [_parameter(OPTIONS[name]) for name in FIRST]
    advanced = inspect.Parameter(
        ADVANCED, inspect.Parameter.POSITIONAL_OR_KEYWORD, default={}, annotation=Annotated[_advanced(), _titled()]
    )
    vars(flow)["__signature__"] = inspect.Signature([*shown, advanced])
    vars(flow)["parameters"] = parameter_schema(flow)  # type: ignore[arg-type]  # it asks for the signature only
    return flow


def spread(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the flow as the specification has them.

    An option may stand by itself, under `advanced`, or there in its group. Under `advanced` counts, because by itself
    it may be the default of the flow's function. An empty text is none where none is the default.
    """
    advanced = parsed(asked.get(ADVANCED, {}))
    if isinstance(advanced, BaseModel):
        advanced = advanced.model_dump()
    flat, rest = {name: value for name, value in asked.items() if name != ADVANCED}, advanced
    if isinstance(advanced, dict):
        rest = {}
        for key, value in advanced.items():
            value = parsed(value) if key in GROUPS else value
            for name, each in (value if key in GROUPS and isinstance(value, dict) else {key: value}).items():
                (flat if name in FLAT else rest)[name] = each
        rest = {name: value for name, value in rest.items() if not _is_empty(name, value)}
    return {**{name: value for name, value in flat.items() if not _is_empty(name, value)}, ADVANCED: rest}


def parameters(spec: BaseModel) -> dict[str, Any]:
    """The parameters with which a deployment runs a specification once more."""
    stated = spec.model_dump(mode="json")
    return {name: "" if value is None else value for name, value in stated.items()}


def _is_empty(name: str, value: Any) -> bool:
    """Whether an option was left empty; None is how earlier forms say it."""
    return value in ("", None) and name != "environment" and name in OPTIONS and OPTIONS[name].default is None


def _parameter(each: Declared) -> inspect.Parameter:
    kind, default = _without_none(each.kind), each.default
    if default is None:
        default = inspect.Parameter.empty if kind is each.kind else ""
    return inspect.Parameter(
        each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=_annotated(each, kind)
    )


def _annotated(each: Declared, kind: Any) -> Any:
    # Prefect overwrites a field's title and drops its description, but keeps what its JSON Schema has besides.
    return Annotated[(kind, *each.option, _titled(each.option.title or each.name.replace("_", " ").capitalize()))]


def stated(each: Declared) -> Any:
    """What the form of another flow says of a declared option, and its bounds."""
    option = each.option
    extra = {"title": option.title or each.name.capitalize(), "description": option.help, **option.schema}
    return Field(json_schema_extra=extra, **option.bounds)


def titled(title: str, description: str, **bounds: Any) -> Any:
    """What the form says of a parameter of any other flow, and its bounds."""
    return Field(json_schema_extra={"title": title, "description": description}, **bounds)


def _titled(title: str = "Advanced") -> Any:
    return Field(json_schema_extra={"title": title})


def _without_none(kind: Any) -> Any:
    """The type without None."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    return kind


def _advanced() -> type[BaseModel]:
    """The model of `advanced`: its groups, and options of none."""
    # A signature's defaults become a schema's: {} stands for those of the fields below.
    fields: dict[str, Any] = {}
    rest = [each for each in OPTIONS.values() if each.name not in FIRST]
    for key, (title, about) in GROUPS.items():
        model = _model(key, [each for each in rest if each.option.group == title])
        fields[key] = (Annotated[model, Field(json_schema_extra={"title": title, "description": about})], {})
    own = _model("own", [each for each in rest if not each.option.group])
    return create_model("Advanced", __base__=own, **fields)


def _model(name: str, options: list[Declared]) -> type[BaseModel]:
    fields: dict[str, Any] = {each.name: (_annotated(each, _without_none(each.kind)), each.default) for each in options}
    return create_model(name.capitalize(), __config__=ConfigDict(json_schema_extra=_in_order), **fields)


def _in_order(schema: dict[str, Any]) -> None:
    """Number the fields, since PostgreSQL forgets their order, and leave out defaults that are none."""
    for position, field in enumerate(schema.get("properties", {}).values()):
        field["position"] = position
        if field.get("default", "") is None:
            del field["default"]
