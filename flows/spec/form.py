"""The form of a campaign in the Prefect UI: what people change first, the rest in groups under `advanced`.

Prefect makes a form from a flow's signature, so the flow shows another one than its function has. The function takes
every option by itself too, as deployments state them (`flows.spec.spec.spread`). Nothing in the form is "None": a text
without a default is empty, and a number without one may be left empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from flows.spec.spec import GROUPS, OPTIONS, declared

F = TypeVar("F", bound=Any)
FIRST = ("environment", "proposer", "trials", "hours", "until", "parallel", "launch", "name")
"""What people change first, in this order."""
REQUIRED = inspect.Parameter.empty


def form(flow: F) -> F:
    """Have a flow of a campaign take every option, and show the form."""
    from prefect.utilities.callables import parameter_schema

    *own, _ = inspect.signature(flow.fn).parameters.values()  # without **options
    by_itself = [name for name in (*OPTIONS, "advanced") if name not in {each.name for each in own}]
    vars(flow.fn)["__signature__"] = inspect.Signature([*own, *(_parameter(name, None, Any) for name in by_itself)])
    shown = [_parameter(name, _default(OPTIONS[name]), _annotated(name)) for name in FIRST]
    advanced = _parameter("advanced", {}, Annotated[_advanced(), Field(json_schema_extra={"title": "Advanced"})])
    vars(flow)["__signature__"] = inspect.Signature([*shown, advanced])
    vars(flow)["parameters"] = parameter_schema(flow)
    return flow


def titled(title: str, description: str, **bounds: Any) -> Any:
    """What the form says of a parameter of any other flow, and its bounds."""
    return Field(json_schema_extra={"title": title, "description": description}, **bounds)


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(field: FieldInfo) -> Any:
    if field.default is PydanticUndefined:
        return REQUIRED
    return "" if field.default is None else field.default


def _annotated(name: str) -> Any:
    """The type of an option where it is stated, with its bounds, its label and its help."""
    field = OPTIONS[name]
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    kind = kinds[0] if type(None) in get_args(field.annotation) else field.annotation
    shown = {"title": name.replace("_", " ").capitalize(), **declared(field)}
    extra = {key: value for key, value in shown.items() if key not in ("group", "fixed")}
    return Annotated[(kind, *field.metadata, Field(json_schema_extra=extra))]


def _advanced() -> type[BaseModel]:
    """The model of `advanced`: its groups, and options of none."""
    rest = [name for name in OPTIONS if name not in FIRST]
    fields: dict[str, Any] = {}
    for key, (title, about) in GROUPS.items():
        model = _model(key, [name for name in rest if declared(OPTIONS[name]).get("group") == title])
        # Defaults of a signature become those of the schema: {} stands for those of the model's fields.
        fields[key] = (Annotated[model, Field(json_schema_extra={"title": title, "description": about})], {})
    alone = _model("alone", [name for name in rest if "group" not in declared(OPTIONS[name])])
    return create_model("Advanced", __base__=alone, **fields)


def _model(name: str, options: Iterable[str]) -> type[BaseModel]:
    fields: dict[str, Any] = {each: (_annotated(each), OPTIONS[each].default) for each in options}
    return create_model(name.capitalize(), __config__=ConfigDict(json_schema_extra=_in_order), **fields)


def _in_order(schema: dict[str, Any]) -> None:
    """Number the fields, since PostgreSQL forgets their order, and leave out defaults that are none."""
    for position, field in enumerate(schema.get("properties", {}).values()):
        field["position"] = position
        if field.get("default", "") is None:
            del field["default"]
