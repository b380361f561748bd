"""Advanced: the options that few campaigns change, as one part of the form in the Prefect UI."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from flows.spec.options import AdvancedOptions
from tasks.deciding.fidelity import LEAST, MOST


def parsed(value: Any) -> Any:
    """A value, read from JSON where Prefect keeps it as text, as in a schedule; {} where the field was not touched."""
    if isinstance(value, dict) and value.get("__prefect_kind") == "json":
        value = value.get("value") or {}
        try:
            return json.loads(value) if isinstance(value, str) else value
        except json.JSONDecodeError as wrong:
            raise ValueError(f"{value!r} is not JSON: {wrong}") from wrong
    return value


class Advanced(AdvancedOptions, BaseModel):
    """What few campaigns change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("fidelity", mode="before")
    @classmethod
    def _share(cls, value: Any) -> Any:
        """Read a share of the budget as a number or as a text, without an end that says nothing."""
        if value == "none":
            return value
        try:
            share = float(value)
        except (TypeError, ValueError):
            share = math.nan
        if not LEAST <= share <= MOST:
            raise ValueError(f"must be none, or a share of the budget from {LEAST:g} to {MOST:g} such as 0.3")
        return f"{share:g}"

    @field_validator("options", "rule_options", "cancel_options", "overrides", mode="before")
    @classmethod
    def _edited(cls, value: Any) -> Any:
        value = parsed(value)
        if isinstance(value, dict) and None in value.values():
            raise ValueError(f"{next(key for key in value if value[key] is None)!r} is null: leave it out")
        for key, each in value.items() if isinstance(value, dict) else ():
            if not all(map(math.isfinite, _floats(each))):
                raise ValueError(f"{key!r} must be finite, got {each!r}")
        return value


def _floats(value: Any) -> Iterator[float]:
    """The floats in a value that JSON may hold."""
    if isinstance(value, float):
        yield value
    for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _floats(below)
