"""Grid: every combination once, in order, and then no more."""

from __future__ import annotations

import itertools
import math

from pydantic import Field

from environments.space import Space
from tasks.proposers import Pending, Proposer, Suggestion
from tasks.trial import History


class Grid(Proposer):
    """The full product of the parameters' values; the last parameter varies fastest."""

    points: int = Field(default=3, ge=1, le=1_000)
    """Values per float or int parameter, evenly spaced on its scale; a choice always gives all of its values."""

    def propose(self, space: Space, history: History, pending: Pending, seed: int) -> Suggestion | None:
        axes = {name: parameter.grid(self.points) for name, parameter in space.items()}
        total = math.prod(len(axis) for axis in axes.values())
        index = sum(number > 0 for number in (*pending, *(trial.number for trial in history)))
        if not axes or index >= total:
            return None
        values = next(itertools.islice(itertools.product(*axes.values()), index, None))
        return Suggestion(dict(zip(axes, values, strict=True)), f"grid point {index + 1} of {total}")
