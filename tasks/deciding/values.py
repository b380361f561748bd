"""The values that rules take and return."""

from __future__ import annotations

from dataclasses import dataclass, field

from environments.score import Score
from tasks.trial import Level, Proposal, Rerun, Run, UntrainedControl

BASELINE_RUNS = 3
"""Of the environment's own program, so that the noise is known before anything is compared with it."""


@dataclass(frozen=True)
class JudgedTrial:
    """A trial that is run and judged, and not decided yet."""

    number: int
    proposal: Proposal
    runs: tuple[Run, ...]
    score: Score
    reruns: tuple[Rerun, ...] = ()
    control: UntrainedControl | None = None
    """What is there without training; None when it was not asked."""

    def again(self, number: int) -> tuple[Rerun, ...]:
        """Its reruns of one trial that have a score."""
        return tuple(rerun for rerun in self.reruns if rerun.of == number and rerun.score.value is not None)


@dataclass(frozen=True)
class Again:
    """A rule cannot tell yet: run a trial once more."""

    of: int


@dataclass(frozen=True)
class Weighed:
    """Whether a trial is to replace the champion, and why."""

    better: bool
    words: str
    level: Level = "provisional"
    evidence: dict[str, float | int | None] = field(default_factory=dict)
