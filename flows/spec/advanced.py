"""Advanced: what few campaigns change, as one part of the form in the Prefect UI."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tasks.deciding.certificate import Looks
from tasks.store.approval import Mode


class Advanced(BaseModel):
    """What few campaigns change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    patience: int | None = Field(
        default=None,
        ge=1,
        title="Patience",
        description="Stop after so many trials in a row without a better one.",
    )
    crash_share: float = Field(
        default=0.8,
        gt=0,
        le=1,
        title="Crash share",
        description="Stop when more of the last 10 trials crashed.",
    )
    isolation: Literal["auto", "bwrap", "landlock", "none"] = Field(
        default="auto",
        title="Isolation",
        description="How trials are walled in; auto: the strongest way that the machine offers.",
    )
    allow_unsandboxed: bool = Field(
        default=False,
        title="Allow unsandboxed",
        description="Run edited programs even at isolation none, where nothing keeps them from your files.",
    )
    looks: Looks = Field(
        default="one",
        title="Looks",
        description="Certificates that the campaign may take: one, at the whole error rate, or several.",
    )
    ablation: bool = Field(
        default=False,
        title="Ablation",
        description="After a certificate, run the champion without each of its changes once.",
    )
    fallback: str = Field(
        default="tpe",
        title="Fallback",
        description="The proposer that takes the turn where the one that was asked cannot propose; it asks nobody.",
    )
    approval: Mode = Field(
        default="none",
        title="Approval",
        description="What a person has to let pass: nothing, every new program (code), or every trial (all).",
    )
    approval_minutes: float = Field(
        default=60.0,
        gt=0,
        le=60 * 24 * 30,
        title="Approval minutes",
        description="How long a proposal waits for a person; then it is rejected.",
    )
    max_usd: float | None = Field(
        default=None,
        ge=0,
        title="Most USD",
        description="What language models and agents may cost in all; then the fallback proposes.",
    )
    max_tokens: int | None = Field(
        default=None, ge=0, title="Most tokens", description="The same in tokens, in and out together."
    )
    learn_from: list[str] = Field(
        default=[],
        title="Learn from",
        description="Earlier campaigns in the same environment whose trials a proposer may learn from.",
    )
    traces: bool = Field(
        default=False,
        title="Traces",
        description="Show in MLflow what language models were asked and answered.",
    )
    rule_options: dict[str, Any] = Field(
        default={}, title="Rule options", description="Options of the rule, as JSON."
    )
    cancel_options: dict[str, Any] = Field(
        default={},
        title="Cancel options",
        description='Options of what cancels trials, as JSON, such as {"fraction": 0.5} for curve.',
    )
    options: dict[str, Any] = Field(
        default={},
        title="Proposer options",
        description='Options of the proposer, as JSON, such as {"points": 5} for grid.',
    )
    overrides: dict[str, Any] = Field(
        default={},
        title="Overrides",
        description='Keys of environment.toml, as JSON, such as {"control.episodes": 20}.',
    )

    @field_validator("options", "rule_options", "cancel_options", "overrides", mode="before")
    @classmethod
    def _edited(cls, value: Any) -> Any:
        """Prefect stores a schedule's parameters as its form has them: JSON as text, without any where untouched."""
        if isinstance(value, dict) and value.get("__prefect_kind") == "json":
            value = value.get("value") or {}
            value = json.loads(value) if isinstance(value, str) else value
        if isinstance(value, dict) and None in value.values():
            raise ValueError(f"{next(key for key in value if value[key] is None)!r} is null: leave it out")
        return value
