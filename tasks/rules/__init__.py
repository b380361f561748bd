"""Rules: whether a trial's score beats the champion's. One file each.

A rule keeps no state: its answer follows from the history and the trial. It either decides, or asks for one more run
of the trial, unless there is no time left (`tried.is_last`). The certificate on fresh runs has the
last word (tasks/stats/certificate.py), unless the rule does without. Its fields are its options. To add one, put a
file like this into the folder; its name is the name used in a campaign:

    from tasks.rules import JudgedTrial, NeedsRerun, Rule
    from tasks.trial import History, Verdict, best

    class Threshold(Rule):
        \"\"\"Better by a stated margin.\"\"\"

        margin: float = 10.0

        def weigh(self, history: History, tried: JudgedTrial) -> Verdict | NeedsRerun:
            champion = best(history)
            gain = tried.score.utility - champion.score.utility
            return Verdict("keep" if gain > self.margin else "discard", f"{gain:+.4g} against the champion")
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel

from environments.score import Score
from tasks.trial import History, Proposal, Rerun, Run, UntrainedControl, Verdict

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


@dataclass(frozen=True)
class NeedsRerun:
    """A rule needs one more run of this trial."""


class Rule(BaseModel, ABC, frozen=True, extra="forbid"):
    """Decides which trials the search builds on."""

    certifies: ClassVar[bool] = True
    """Whether a campaign ends with a certificate, and begins with several runs of the baseline; otherwise it ships what
    it kept."""

    def baseline_runs(self, replicates: int, deterministic: bool) -> int:
        """Training runs of the baseline, if every trial has `replicates`."""
        if not self.certifies:
            return replicates
        return max(replicates, 2 if deterministic else BASELINE_RUNS)  # two runs show that nothing is random

    def in_words(self, history: History) -> str:
        """When the next trial will be kept, with the threshold as of now; empty where it is not known."""
        return ""

    @abstractmethod
    def weigh(self, history: History, tried: JudgedTrial) -> Verdict | NeedsRerun:
        """Whether a trial with a score beats the champion of `history`, or that it takes another run to tell."""
