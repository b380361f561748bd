"""Hybrid: numeric search first, code edits when it plateaus, numeric search again for the new program.

    numbers   a numeric optimiser proposes; for a fraction of the trials a language model does, which sees the
              optimiser's suggestion
    code      a language model edits the program

It begins with numbers, and switches to code after `stall` trials in a row without a keep. It switches back after a kept
edit, which is a new program to tune, after `failures` edits in a row that could not be tried or crashed, and after
`spell` edits without a keep. When numbers plateau again, it returns to code. The mode follows from the history alone,
and each switch is stored with its reason.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from environments import plugins
from tasks.proposers import Proposer
from tasks.proposers._researcher import Researcher
from tasks.proposing.brief import Brief, RejectedProposal, RemainingBudget, Suggestion, Unavailable, Unusable
from tasks.trial import Trial

Way = Literal["numbers", "code"]


@dataclass(frozen=True)
class Stand:
    """The mode, and for how long it has lasted."""

    way: Way = "numbers"
    fruitless: int = 0
    """Trials without a keep, in a row, in this mode."""
    failed: int = 0
    """Those at the end of them that could not be tried, or crashed."""
    why: str = ""
    """Why the last trial switched the mode; empty when it did not."""


@dataclass(frozen=True)
class Turn:
    """What came of one proposal, as far as the mode goes by it."""

    number: int
    is_edit: bool = True
    is_rejected: bool = False
    is_kept: bool = False
    is_instead: bool = False
    """Whether another proposer made it, since this one could not."""
    is_failed: bool = True
    """Whether it could not be tried, or crashed."""


class Hybrid(Researcher):
    """A numeric optimiser, a language model that advises it, and one that edits code."""

    edits: ClassVar[bool] = True

    numeric: str = Field(default="tpe", description="The proposer for numbers.")
    adviser: str = Field(default="llm", description="The proposer for a fraction of the trials of numbers.")
    writer: str = Field(default="llm_diff", description="The proposer of code edits.")
    fraction: float = Field(default=0.2, ge=0, le=1, description="Of the numbers that the adviser proposes.")
    stall: int = Field(default=5, ge=1, description="Trials of numbers without a keep until code is edited.")
    spell: int = Field(default=5, ge=1, description="Edits without a keep until it goes back to numbers.")
    failures: int = Field(
        default=3, ge=1, description="Edits in a row that could not be tried, until it goes back to numbers."
    )
    numeric_options: dict[str, Any] = Field(default={}, description="Options of the proposer for numbers.")
    adviser_options: dict[str, Any] = Field(default={}, description="Options of the adviser.")
    writer_options: dict[str, Any] = Field(default={}, description="Options of the proposer of code edits.")

    def propose(self, brief: Brief) -> Suggestion | None:
        stand = self.stand(brief.history, brief.rejected)
        # Drawn from the trial's number: its seed changes with every turn, and the turns belong to one proposer.
        draw = random.Random(f"{brief.campaign_seed}/{len(brief.history)}/{len(brief.pending)}")
        if stand.way == "code":
            found = _ask(self.writer, self.loaded_writer, brief)
        elif draw.random() < self.fraction:
            hint = self.loaded_numeric.propose(replace(brief, refusals=()))
            found = _ask(self.adviser, self.loaded_adviser, replace(brief, hint=hint))
        else:
            found = _ask(self.numeric, self.loaded_numeric, brief)
            if found is None:  # a grid that has been tried out is no end of the night
                found, stand = _ask(self.writer, self.loaded_writer, brief), Stand()
        return found and replace(found, switch=stand.why)

    def stand(self, history: Sequence[Trial], rejected: Sequence[RejectedProposal] = ()) -> Stand:
        """The mode of the trial after `history`."""
        # The inbox is of neither mode.
        turns = [self._turn(trial) for trial in history if trial.number > 0 and not trial.proposal.inbox]
        for number in (one.number for one in rejected if one.proposal.proposer == self.writer):
            place = next((place for place, turn in enumerate(turns) if turn.number > number), len(turns))
            turns.insert(place, Turn(number, is_rejected=True))
        stand = Stand()
        for turn in turns:
            stand = self._after(stand, turn)
        return stand

    def _turn(self, trial: Trial) -> Turn:
        kind, instead = trial.verdict.kind, bool(trial.proposal.instead_of)
        return Turn(
            trial.number,
            is_edit=trial.proposal.proposer == self.writer,
            is_kept=kind == "keep",
            is_instead=instead,
            is_failed=instead or kind == "crash",
        )

    def _after(self, stand: Stand, turn: Turn) -> Stand:
        fruitless, failed = stand.fruitless + 1, stand.failed + 1 if turn.is_failed else 0
        if stand.way == "numbers":
            if turn.is_rejected:  # an edit that waited for approval since the mode was code
                return replace(stand, why="")
            if turn.is_kept:
                return Stand()
            if fruitless >= self.stall:
                return Stand("code", why=f"over to code: {fruitless} trials of numbers in a row without a keep")
            return Stand("numbers", fruitless)
        if not turn.is_edit and not turn.is_instead:
            return replace(stand, why="")  # another proposer had the turn while an edit waited for approval
        if turn.is_kept and not turn.is_instead:
            return Stand(why=f"back to numbers: the edit of trial {turn.number} was kept, and is to be tuned")
        if failed >= self.failures:
            return Stand(why=f"back to numbers: {failed} edits in a row could not be tried")
        if fruitless >= self.spell:
            return Stand(why=f"back to numbers: {fruitless} edits in a row without a keep")
        return Stand("code", fruitless, failed)

    @property
    def loaded_numeric(self) -> Proposer:
        return _load(self.numeric, self.numeric_options)

    @property
    def loaded_adviser(self) -> Proposer:
        return _load(self.adviser, self.adviser_options, self)

    @property
    def loaded_writer(self) -> Proposer:
        return _load(self.writer, self.writer_options, self)

    def preflight(self, left: RemainingBudget = RemainingBudget()) -> None:
        self.loaded_numeric.preflight(left)
        if self.fraction:
            self.loaded_adviser.preflight(left)
        self.loaded_writer.preflight(left)


def _ask(name: str, proposer: Proposer, brief: Brief) -> Suggestion | None:
    """Another proposer's suggestion, under that proposer's name."""
    try:
        found = proposer.propose(brief)
    except Unusable as unusable:
        unusable.refusal = replace(unusable.refusal, proposer=name)
        raise
    except Unavailable as gone:
        raise Unavailable(f"{name}: {gone}", gone.usage) from gone
    return found and replace(found, proposer=found.proposer or name)


def _load(name: str, options: dict[str, Any], account: Researcher | None = None) -> Proposer:
    """A proposer with its options; its language model is that of `account`, unless they say another."""
    cls = plugins.load("tasks.proposers", name, Proposer)  # type: ignore[type-abstract]
    shared = Researcher.model_fields if account and issubclass(cls, Researcher) else ()
    own = {field: getattr(account, field) for field in shared}
    return plugins.make("tasks.proposers", name, Proposer, {**own, **options})  # type: ignore[type-abstract]
