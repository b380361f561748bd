"""Effort: the time that a program spends under judgement, and the allowance that bounds it.

A program could train on while it is judged, where nothing counts its steps. So the processor time of all of its
processes is measured by the engine, and bounded by what the environment's own program needs there.

It is counted from the start of the process, imports included, for the baseline as for every trial: what a program
imports cannot be told apart from what it computes, and all programs of a campaign are started in the same way. Where
an interpreter with loaded modules takes over, both are counted from that moment; the spare seconds are the same. A
program that imports less than the baseline has the rest for itself.

Processor time decides, because load on the machine hardly changes it. Waiting time has a bound of its own, far above
any need, for what computes elsewhere, such as on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

READY_TIMES = 2.0
"""How often the baseline's need until it is ready: load raises the processor time of the same work by up to a half."""
ANSWER_TIMES = 20.0
"""How often its need per answer: a network may be larger, and load tells more on work of microseconds."""
SPARE_SECONDS = 2.0
SPARE_READY, SPARE_ANSWERS = 0.02, 0.05
"""Spare seconds until it is ready, and for all answers together: so many, and a share of the budget besides."""
WAIT_TIMES, WAIT_SECONDS = 20.0, 60.0
ELSEWHERE_TIMES = 4.0
"""How much slower a machine may be than the one on which the baseline was measured."""


@dataclass(frozen=True)
class Effort:
    """What one program spent under judgement until its last scored answer, in seconds of all its processes together."""

    ready: float
    """Processor time until it was ready."""
    answering: float
    """Processor time from then on."""
    answers: int
    ready_wait: float
    """Time on the clock until it was ready."""
    answer_wait: float
    """Time on the clock that the judge waited for answers, all together."""
    longest_wait: float
    """The longest such time of one answer."""

    def times(self, factor: float) -> Effort:
        """The same on a machine that is slower by this factor."""
        return Effort(
            self.ready * factor, self.answering * factor, self.answers, self.ready_wait * factor,
            self.answer_wait * factor, self.longest_wait * factor,
        )  # fmt: skip


@dataclass(frozen=True)
class Allowance:
    """Most seconds that a program may spend under judgement."""

    ready: float
    """Processor time that the baseline needs until it is ready."""
    answer: float
    """Processor time that it needs for an answer, on average."""
    wait: float
    """Time on the clock that it needs until it is ready."""
    answer_wait: float
    """Time on the clock that it needs for an answer, on average."""
    budget_seconds: float
    """The budget of one training."""
    share: float = 1.0
    """The part of what exceeds the need that is granted: a half in a certificate."""

    @classmethod
    def of(cls, needs: Sequence[Effort], budget_seconds: float) -> Allowance:
        """The allowance given what runs of the baseline (at least one) have needed; the largest of each counts."""
        return cls(
            max(need.ready for need in needs),
            max(need.answering / max(need.answers, 1) for need in needs),
            max(need.ready_wait for need in needs),
            max(need.answer_wait / max(need.answers, 1) for need in needs),
            budget_seconds,
        )

    def halved(self) -> Allowance:
        """With half of the spare time. A program that trains under judgement then lacks what it lived on."""
        return replace(self, share=self.share / 2)

    @property
    def until_ready(self) -> float:
        """Processor time until it is ready."""
        return READY_TIMES * self.ready + self.share * (SPARE_SECONDS + SPARE_READY * self.budget_seconds)

    def answering(self, answers: int) -> float:
        """Processor time for the first so many answers together."""
        spare = SPARE_SECONDS + SPARE_ANSWERS * self.budget_seconds
        return self.share * (ANSWER_TIMES * self.answer * answers + spare)

    def waiting(self, answers: int) -> float:
        """Time on the clock until it is ready and for the first so many answers, without that of the judge."""
        return WAIT_SECONDS + WAIT_TIMES * (self.wait + self.answer_wait * answers)
