"""Effort: the time that a program spends under judgement, and the allowance that bounds it.

A program could train on while it is judged, where nothing counts its steps. So the processor time of all of its
processes is measured by the engine, and bounded by what the environment's own program needs there.

It is counted from the moment at which the packages are loaded that the program imports, which the engine does for it
(tasks/judged_start.py). So it is the same whether they come from the disk or from memory, and what is left is small
enough for a narrow bound: what a program with a wider network needs besides, and what load on the machine adds.

Processor time decides, because load on the machine hardly changes it. Waiting time has a bound of its own, far above
any need, for what computes elsewhere, such as on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

READY_TIMES = 2.0
"""How often the need until it is ready: load raises the processor time of the same work by up to a half."""
ANSWER_TIMES = 16.0
"""How often the baseline's need per answer: a network four times as wide takes five times as long, and load tells more
on work of microseconds."""
OWN_ANSWER_TIMES = 6.0
"""How often its need per answer, where that of the same program and parameters is known."""
SPARE_SECONDS, SPARE_SHARE = 0.2, 0.005
"""Spare seconds until it is ready, and for all answers together: so many, and a share of the budget besides."""
WAIT_TIMES, WAIT_SECONDS = 20.0, 60.0
ELSEWHERE_TIMES = 4.0
"""How much slower a machine may be than the one on which the baseline was measured."""


@dataclass(frozen=True)
class Effort:
    """What one program spent under judgement until its last scored answer, in seconds of all its processes together."""

    ready: float
    """Processor time until it was ready, from when its packages were loaded."""
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
    """Processor time that it needs until it is ready."""
    answer: float
    """Processor time that it needs for an answer, on average."""
    wait: float
    """Time on the clock that it needs until it is ready."""
    answer_wait: float
    """Time on the clock that it needs for an answer, on average."""
    budget_seconds: float
    """The budget of one training."""
    answer_times: float = ANSWER_TIMES
    share: float = 1.0
    """The part of it that is granted beyond the need: a half in a certificate."""
    most: Allowance | None = None
    """What the search granted, if this one goes by another need: it never grants more."""

    @classmethod
    def of(cls, needs: Sequence[Effort], budget_seconds: float, answer_times: float = ANSWER_TIMES) -> Allowance:
        """The allowance given what runs (at least one) have needed: of the baseline, or of the same program with
        OWN_ANSWER_TIMES. The largest of each counts.
        """
        return cls(
            max(need.ready for need in needs),
            max(need.answering / max(need.answers, 1) for need in needs),
            max(need.ready_wait for need in needs),
            max(need.answer_wait / max(need.answers, 1) for need in needs),
            budget_seconds,
            answer_times,
        )

    def halved(self) -> Allowance:
        """With half of the spare time. A program that trains under judgement then lacks what it lived on."""
        return replace(self, share=self.share / 2)

    @property
    def until_ready(self) -> float:
        """Processor time until it is ready, from when its packages are loaded."""
        own = READY_TIMES * self.ready + self._spare
        return min(own, self.most.until_ready) if self.most else own

    def answering(self, answers: int) -> float:
        """Processor time for the first so many answers together."""
        own = self.share * self.answer_times * self.answer * answers + self._spare
        return min(own, self.most.answering(answers)) if self.most else own

    def waiting(self, answers: int) -> float:
        """Time on the clock until it is ready and for the first so many answers, without that of the judge."""
        return WAIT_SECONDS + WAIT_TIMES * (self.wait + self.answer_wait * answers)

    @property
    def _spare(self) -> float:
        return self.share * (SPARE_SECONDS + SPARE_SHARE * self.budget_seconds)
