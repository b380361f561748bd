"""Grid: every combination once, in order, and then no more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

from pydantic import Field

from environments.space import Value
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, Suggestion


class Grid(Proposer):
    """The full product of the parameters' values; the last parameter varies fastest. What was tried is left out."""

    points: int = Field(default=3, ge=1, le=1_000)
    """Values per float or int parameter, evenly spaced on its scale; a choice always gives all of its values."""

    def propose(self, brief: Brief) -> Suggestion | None:
        axes = {name: parameter.grid(self.points) for name, parameter in brief.space.items()}
        if not axes:
            return None
        proposals = [trial.proposal for trial in brief.history] + [*brief.pending.values()]
        proposals += [one.proposal for one in brief.rejected]
        tried = {_key(axes, one.params) for one in proposals}
        total = math.prod(len(axis) for axis in axes.values())
        points = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
        new = ((place, point) for place, point in enumerate(points, 1) if _key(axes, point) not in tried)
        found = next(itertools.islice(new, len(brief.refusals), None), None)  # those before were refused
        return Suggestion(found[1], f"grid point {found[0]} of {total}") if found else None


def _key(axes: Iterable[str], params: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(repr(params.get(name)) for name in axes)  # by repr, since True == 1
