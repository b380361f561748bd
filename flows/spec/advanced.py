"""Advanced: the options that few campaigns change, as one part of the form in the Prefect UI."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from flows.spec.options import AdvancedOptions


class Advanced(AdvancedOptions, BaseModel):
    """What few campaigns change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("options", "rule_options", "cancel_options", "overrides", mode="before")
    @classmethod
    def _edited(cls, value: Any) -> Any:
        """Read JSON as Prefect stores it in a schedule: as text, or without any where the field was not touched."""
        if isinstance(value, dict) and value.get("__prefect_kind") == "json":
            value = value.get("value") or {}
            value = json.loads(value) if isinstance(value, str) else value
        if isinstance(value, dict) and None in value.values():
            raise ValueError(f"{next(key for key in value if value[key] is None)!r} is null: leave it out")
        return value
