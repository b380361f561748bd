"""Proposers: what to try next, as a function of history and seed. One file each.

A proposer keeps nothing: no state, no callbacks. It knows what it is given, the history and what is under way, so
resume, retry and replay are one thing. Its fields are its options, checked before anything starts. To add one, put a
file like this into the folder; its name is the name used in a campaign:

    class Again(Proposer):
        \"\"\"The champion's parameters once more.\"\"\"

        def propose(self, space: Space, history: History, pending: Pending, seed: int) -> Suggestion | None:
            champion = best(history)
            return Suggestion(champion.proposal.params, "does it hold?") if champion else None
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from environments.space import Space
from tasks.trial import History, Params, Proposal

Pending = Mapping[int, Proposal]
"""What is under way, proposed but not decided: the proposals by the numbers of their trials."""


@dataclass(frozen=True)
class Suggestion:
    """What a proposer wants to try: values for parameters of the space (the others stay at the baseline's), and why."""

    params: Params
    rationale: str


class Proposer(BaseModel, ABC):
    """Decides what to try next."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def propose(self, space: Space, history: History, pending: Pending, seed: int) -> Suggestion | None:
        """What to try after `history`, beside what is `pending`; None when there is nothing left to try.

        The history's first trial is the baseline. Every trial has a `seed` of its own; what all trials of a campaign
        share can be drawn from the baseline's, `history[0].runs[0].seed`. The same arguments must give the same
        answer, in any process.
        """
