"""Random search: every parameter drawn independently, each on its own scale. The baseline of every other proposer."""

from __future__ import annotations

import numpy as np

from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, Suggestion


class RandomSearch(Proposer):
    """Independent uniform draws (log-uniform where the parameter says so)."""

    def propose(self, brief: Brief) -> Suggestion:
        rng = np.random.default_rng(brief.seed)
        return Suggestion({name: parameter.sample(rng) for name, parameter in brief.space.items()}, "a random draw")
