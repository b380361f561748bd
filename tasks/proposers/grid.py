"""Grid: every combination once, in order, and then no more."""

from __future__ import annotations

import itertools
import math

from pydantic import Field

from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, Suggestion
from tasks.proposing.points import point_of


class Grid(Proposer):
    """The full product of the parameters' values; the last parameter varies fastest. What was tried is left out."""

    points: int = Field(default=3, ge=1, le=1_000)
    """Values per float or int parameter, evenly spaced on its scale; a choice always gives all of its values."""

    def propose(self, brief: Brief) -> Suggestion | None:
        axes = [parameter.grid(self.points) for parameter in brief.space.values()]
        proposals = [trial.proposal for trial in brief.history] + [*brief.pending.values()]
        proposals += [one.proposal for one in brief.rejected]
        tried = {repr(point_of(brief.space, one.params)) for one in proposals}
        points = enumerate(itertools.product(*axes), 1)
        new = ((place, point) for place, point in points if repr(point) not in tried)
        found = next(itertools.islice(new, len(brief.refusals), None), None)  # those before were refused
        if found is None:
            return None
        place, point = found
        why = f"grid point {place} of {math.prod(map(len, axes))}"
        return Suggestion(dict(zip(brief.space, point, strict=True)), why)
