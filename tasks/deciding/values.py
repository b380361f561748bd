"""The values that rules take and return."""

from __future__ import annotations

from dataclasses import dataclass, field

from environments.score import Score
from tasks.trial import Level, Proposal, Rerun, Run, UntrainedControl

BASELINE_RUNS = 3
"""Runs of the baseline, so that the noise is known before the first comparison."""
BASELINE_SCORES = 2
"""Of them that must have a score: a program that crashes now and then can still be compared with."""


@dataclass(frozen=True)
class JudgedTrial:
    """A trial that is trained and judged, but not decided."""

    number: int
    proposal: Proposal
    runs: tuple[Run, ...]
    score: Score
    reruns: tuple[Rerun, ...] = ()
    control: UntrainedControl | None = None
    """Score without training; None if it was not needed."""
    is_last: bool = False
    """Whether no time is left for another run of it: then a rule has to decide."""

    def again(self, number: int) -> tuple[Rerun, ...]:
        """Its reruns of one trial that have a score."""
        return tuple(rerun for rerun in self.reruns if rerun.of == number and rerun.score.value is not None)


@dataclass(frozen=True)
class NeedsRerun:
    """A rule needs one more run of this trial."""

    of: int


@dataclass(frozen=True)
class RuleAnswer:
    """A rule's answer: whether a trial replaces the champion, and why."""

    better: bool
    words: str
    level: Level = "provisional"
    evidence: dict[str, float | int | None] = field(default_factory=dict)
