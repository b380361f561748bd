"""Hybrid: numeric search first, code edits when it plateaus, numeric search again for the new program.

It goes back to numbers after a kept edit, which is a new program to tune, after `failures` edits in a row that could
not be tried or crashed, and after `spell` edits without a keep. The mode follows from the history alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from environments import plugins
from tasks.proposers import Proposer
from tasks.proposers._researcher import Researcher
from tasks.proposing.brief import Brief, RemainingBudget, Suggestion, Unavailable, Unusable
from tasks.trial import Parked, Trial


class Hybrid(Researcher):
    """A numeric optimiser, and a language model that edits code."""

    edits: ClassVar[bool] = True

    numeric: str = "tpe"
    """The proposer for numbers."""
    writer: str = "llm_diff"
    """The proposer of code edits."""
    stall: int = Field(default=5, ge=1)
    """Trials of numbers without a keep until code is edited."""
    spell: int = Field(default=5, ge=1)
    """Edits without a keep until it goes back to numbers."""
    failures: int = Field(default=3, ge=1)
    """Edits in a row that could not be tried, until it goes back to numbers."""
    numeric_options: dict[str, Any] = Field(default={})
    writer_options: dict[str, Any] = Field(default={})

    def propose(self, brief: Brief) -> Suggestion | None:
        mode, switch = self.mode(brief.history, brief.rejected)
        made = _ask(self.numeric, self._numeric(), brief) if mode == "numbers" else None
        if made is None:  # or a grid has been tried out, which is no end of the night
            made = _ask(self.writer, self._writer(), brief)
            switch = switch if mode == "code" else ""
        return made and replace(made, switch=switch)

    def mode(self, history: Sequence[Trial], rejected: Sequence[Parked] = ()) -> tuple[Literal["numbers", "code"], str]:
        """What the trial after `history` searches, and why the last trial switched to that; empty when it did not."""
        # The inbox is of neither mode. An edit that a person rejected is one that could not be tried.
        turns = {trial.number: trial for trial in history if trial.number > 0 and not trial.proposal.inbox}
        unwanted = {one.number for one in rejected if one.proposal.proposer == self.writer}
        in_code, fruitless, failed, why = False, 0, 0, ""
        for number in sorted(turns.keys() | unwanted):
            trial, why = turns.get(number), ""
            is_instead = trial is not None and bool(trial.proposal.instead_of)
            is_edit = trial is None or is_instead or trial.proposal.proposer == self.writer
            is_kept = trial is not None and trial.verdict.kind == "keep"
            if in_code and is_edit:
                is_failed = trial is None or is_instead or trial.verdict.kind == "crash"
                fruitless, failed = fruitless + 1, failed + 1 if is_failed else 0
                if is_kept and not is_instead:
                    why = f"back to numbers: the edit of trial {number} was kept, and is to be tuned"
                elif failed >= self.failures:
                    why = f"back to numbers: {failed} edits in a row could not be tried"
                elif fruitless >= self.spell:
                    why = f"back to numbers: {fruitless} edits in a row without a keep"
            elif not in_code and trial is not None:
                fruitless = 0 if is_kept else fruitless + 1
                if fruitless >= self.stall:
                    why = f"over to code: {fruitless} trials of numbers in a row without a keep"
            # Others had waited for approval since the mode was another, or had the turn while an edit waited.
            if why:
                in_code, fruitless, failed = not in_code, 0, 0
        return "code" if in_code else "numbers", why

    def _numeric(self) -> Proposer:
        return plugins.make("tasks.proposers", self.numeric, Proposer, self.numeric_options)  # type: ignore[type-abstract]

    def _writer(self) -> Proposer:
        """The writer; its language model is the hybrid's own, unless its options say another."""
        cls = plugins.load("tasks.proposers", self.writer, Proposer)  # type: ignore[type-abstract]
        shared = Researcher.model_fields.keys() & cls.model_fields.keys()
        own = {name: value for name in shared if (value := getattr(self, name)) is not None}
        return plugins.make("tasks.proposers", self.writer, Proposer, own | self.writer_options)  # type: ignore[type-abstract]

    def preflight(self, left: RemainingBudget = RemainingBudget()) -> None:
        self._numeric().preflight(left)
        self._writer().preflight(left)


def _ask(name: str, proposer: Proposer, brief: Brief) -> Suggestion | None:
    """Another proposer's suggestion, under that proposer's name."""
    try:
        made = proposer.propose(brief)
    except Unusable as unusable:
        unusable.refusal = replace(unusable.refusal, proposer=name)
        raise
    except Unavailable as gone:
        raise Unavailable(f"{name}: {gone}", gone.usage) from gone
    return made and replace(made, proposer=made.proposer or name)
