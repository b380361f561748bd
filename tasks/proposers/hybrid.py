"""Hybrid: numeric search first, code edits when it plateaus, numeric search again for the new program.

It goes back to numbers after a kept edit, which is a new program to tune, after `failures` edits in a row that could
not be tried or crashed, and after `spell` edits without a keep. The mode follows from the history alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from environments import plugins
from tasks.proposers import Proposer
from tasks.proposers._researcher import Researcher
from tasks.proposing.brief import Brief, RemainingBudget, Suggestion, Unavailable, Unusable
from tasks.trial import Parked, Trial


@dataclass(frozen=True)
class Mode:
    """What is searched, and for how long without a keep."""

    what: Literal["numbers", "code"] = "numbers"
    fruitless: int = 0
    """Trials without a keep, in a row."""
    failed: int = 0
    """Those at the end of them that could not be tried, or crashed."""
    why: str = ""
    """Why the last trial switched the mode; empty when it did not."""


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
        mode = self.mode(brief.history, brief.rejected)
        made = _ask(self.numeric, self._numeric(), brief) if mode.what == "numbers" else None
        if made is None:  # or a grid has been tried out, which is no end of the night
            made = _ask(self.writer, self._writer(), brief)
            mode = mode if mode.what == "code" else Mode()
        return made and replace(made, switch=mode.why)

    def mode(self, history: Sequence[Trial], rejected: Sequence[Parked] = ()) -> Mode:
        """The mode of the trial after `history`."""
        # The inbox is of neither mode. An edit that a person rejected is one that could not be tried.
        turns = {trial.number: trial for trial in history if trial.number > 0 and not trial.proposal.inbox}
        unwanted = {one.number for one in rejected if one.proposal.proposer == self.writer}
        mode = Mode()
        for number in sorted(turns.keys() | unwanted):
            trial = turns.get(number)
            is_instead = trial is not None and bool(trial.proposal.instead_of)
            is_edit = trial is None or is_instead or trial.proposal.proposer == self.writer
            is_kept = trial is not None and trial.verdict.kind == "keep"
            is_failed = trial is None or is_instead or trial.verdict.kind == "crash"
            if mode.what == "code" and is_edit:
                mode = self._after_edit(mode, number, is_kept and not is_instead, is_failed)
            elif mode.what == "numbers" and trial is not None:
                mode = Mode() if is_kept else Mode("numbers", mode.fruitless + 1)
                if mode.fruitless >= self.stall:
                    why = f"over to code: {mode.fruitless} trials of numbers in a row without a keep"
                    mode = Mode("code", why=why)
            else:  # it had waited for approval since the mode was another, or had the turn while an edit waited
                mode = replace(mode, why="")
        return mode

    def _after_edit(self, mode: Mode, number: int, is_kept: bool, is_failed: bool) -> Mode:
        fruitless, failed = mode.fruitless + 1, mode.failed + 1 if is_failed else 0
        if is_kept:
            return Mode(why=f"back to numbers: the edit of trial {number} was kept, and is to be tuned")
        if failed >= self.failures:
            return Mode(why=f"back to numbers: {failed} edits in a row could not be tried")
        if fruitless >= self.spell:
            return Mode(why=f"back to numbers: {fruitless} edits in a row without a keep")
        return Mode("code", fruitless, failed)

    def _numeric(self) -> Proposer:
        return plugins.make("tasks.proposers", self.numeric, Proposer, self.numeric_options)  # type: ignore[type-abstract]

    def _writer(self) -> Proposer:
        """The writer; its language model is the hybrid's own, unless its options say another."""
        cls = plugins.load("tasks.proposers", self.writer, Proposer)  # type: ignore[type-abstract]
        own = {name: getattr(self, name) for name in Researcher.model_fields if issubclass(cls, Researcher)}
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
