"""Grid: every combination once, in order, and then no more."""

from __future__ import annotations

import itertools
import math

from pydantic import Field

from environments.space import Space
from tasks.proposers import Proposer, Suggestion
from tasks.trial import History


class Grid(Proposer):
    """The full product of the parameters' values; the last parameter varies fastest."""

    points: int = Field(default=3, ge=1, le=1_000)
    """Values per float or int parameter, evenly spaced on its scale; a choice always gives all of its values."""

    def propose(self, space: Space, history: History, seed: int) -> Suggestion | None:
        axes = {name: parameter.grid(self.points) for name, parameter in space.items()}
        total = math.prod(len(axis) for axis in axes.values())
        index = len([trial for trial in history if trial.number > 0])
        if not axes or index >= total:
            return None
        values = next(itertools.islice(itertools.product(*axes.values()), index, None))
        return Suggestion(dict(zip(axes, values, strict=True)), f"grid point {index + 1} of {total}")
