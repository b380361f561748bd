"""Grid: every combination once, in order, and then no more."""

from __future__ import annotations

import itertools
import math

from pydantic import Field

from tasks.proposers import Brief, Proposer, Suggestion


class Grid(Proposer):
    """The full product of the parameters' values; the last parameter varies fastest."""

    points: int = Field(default=3, ge=1, le=1_000)
    """Values per float or int parameter, evenly spaced on its scale; a choice always gives all of its values."""

    def propose(self, brief: Brief) -> Suggestion | None:
        axes = {name: parameter.grid(self.points) for name, parameter in brief.space.items()}
        total = math.prod(len(axis) for axis in axes.values())
        index = sum(number > 0 for number in (*brief.pending, *(trial.number for trial in brief.history)))
        if not axes or index >= total:
            return None
        values = next(itertools.islice(itertools.product(*axes.values()), index, None))
        return Suggestion(dict(zip(axes, values, strict=True)), f"grid point {index + 1} of {total}")
