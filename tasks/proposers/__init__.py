"""Proposers: what to try next, as a function of a brief. One file each.

A proposer has no state and no callbacks. It is a function of its brief, above all of the history and the pending
trials, so resume, retry and replay are one thing. Its fields are its options, checked before anything starts.
CONTRIBUTING.md has one to copy.

What it suggests is checked before any compute: parameters against the space, files by applying, parsing and a run of
seconds, both against everything tried before. A suggestion that fails comes back as a refusal in the next brief, a few
times; then another proposer takes the turn, and the trial says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from pydantic import BaseModel

from tasks.proposing.brief import Brief, RemainingBudget, Suggestion

TURNS = 3
"""Suggestions that a proposer may make for one trial: one, and two corrections."""
DRAWS = 8
"""The same for a numeric proposer, which only has to sample again."""


class Proposer(BaseModel, ABC, frozen=True, extra="forbid"):
    """Decides what to try next."""

    edits: ClassVar[bool] = False
    """Whether it may change the program."""
    asks: ClassVar[bool] = False
    """Whether it asks somebody outside of this process, which may fail."""
    waits: ClassVar[bool] = False
    """Whether the campaign waits for the inbox where it has nothing left to try."""

    @property
    def turns(self) -> int:
        """Suggestions that it may make for one trial, as long as each is turned down."""
        return TURNS if self.asks else DRAWS

    @abstractmethod
    def propose(self, brief: Brief) -> Suggestion | None:
        """The next trial; None when there is nothing left to try.

        Raises:
            Unusable: the answer from outside is no suggestion, and it may be asked again.
            Unavailable: there is no answer from outside.
        """

    def preflight(self, left: RemainingBudget = RemainingBudget()) -> None:
        """Refuse, before the first trial, what it needs outside of this process and misses; `left` is its budget."""
