"""Guards: metrics besides the objective that must not get much worse. One table each:

[guards."source/windy"]
margin = 20                     # how much worse it may get, in its own unit
direction = "maximize"          # absent: the objective's
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Guard(BaseModel):
    """How much worse a metric that the judge measures besides the score may get."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    margin: float = Field(ge=0, allow_inf_nan=False)
    """In the metric's own unit; 0 = it must not get worse at all."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """The metric's direction; in an environment the objective's, unless stated."""

    def loss(self, now: float, before: float) -> float:
        """How much worse the metric got, in its own unit; negative where it got better."""
        return before - now if self.direction == "maximize" else now - before
