"""Random search: every parameter drawn independently, each on its own scale. The baseline of every other proposer."""

from __future__ import annotations

import numpy as np

from environments.space import Space
from tasks.proposers import Pending, Proposer, Suggestion
from tasks.trial import History


class RandomSearch(Proposer):
    """Independent uniform draws (log-uniform where the parameter says so)."""

    def propose(self, space: Space, history: History, pending: Pending, seed: int) -> Suggestion:
        rng = np.random.default_rng(seed)
        return Suggestion({name: parameter.sample(rng) for name, parameter in space.items()}, "a random draw")
