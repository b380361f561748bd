"""Rules: what a trial's score is worth against the champion's. One file each.

A rule keeps nothing: what it says follows from the history and from what was tried. It either says whether a trial is
better, or asks for one more run of it or of the champion. Whatever it keeps, a certificate on fresh runs has the last
word (tasks/deciding/certificate.py), unless the rule does without. Its fields are its options. To add one, put a
file like this
into the folder; its name is the name used in a campaign:

    class Threshold(Rule):
        \"\"\"Better by a stated margin.\"\"\"

        margin: float = 10.0

        def weigh(self, history: History, tried: Tried) -> Weighed | Again:
            champion = best(history)
            gain = tried.score.goodness - champion.score.goodness
            return Weighed(gain > self.margin, f"{gain:+.4g} against the champion", "provisional")
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from environments.score import Score
from tasks.trial import Control, History, Level, Proposal, Rerun, Run

BASELINE_RUNS = 3
"""Of the environment's own program, so that the noise is known before anything is compared with it."""


@dataclass(frozen=True)
class Tried:
    """A trial that is run and judged, and not decided yet."""

    number: int
    proposal: Proposal
    runs: tuple[Run, ...]
    score: Score
    reruns: tuple[Rerun, ...] = ()
    control: Control | None = None
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


class Rule(BaseModel, ABC):
    """Decides which trials the search builds on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    certifies: ClassVar[bool] = True
    """Whether a campaign ends with a certificate; otherwise it ships what it kept."""
    replicates_baseline: ClassVar[bool] = True
    """Whether the baseline is run several times first, so that the noise is known from the start."""

    def baseline_runs(self, replicates: int, deterministic: bool) -> int:
        """Training runs of the baseline, where every trial has `replicates`."""
        if not self.replicates_baseline:
            return replicates
        return max(replicates, 2 if deterministic else BASELINE_RUNS)  # two show that nothing is random

    @property
    def most_reruns(self) -> int:
        """Runs that one trial may ask for besides its own."""
        return 0

    @abstractmethod
    def weigh(self, history: History, tried: Tried) -> Weighed | Again:
        """Whether a trial with a score is better than the champion of `history`, or what to run again to tell."""
