"""Score: a judge's result for a trained program.

It holds two kinds of noise, which are never mixed: units (episodes, questions) tell how precisely one trained program
is measured; training runs, one of `values` each, how good a program with its parameters is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, Field

METRIC = r"^[A-Za-z0-9_\-. :/@]+$"
"""Pattern of a metric's name, `noun/detail`: the characters that MLflow accepts, and @."""
LARGEST = 1e30
"""Judges refuse larger numbers like NaN: something has diverged, and sums of their squares overflow in estimates."""
SPARE_SECONDS, TIMES = 20.0, 4.0
"""What a program may need under judgement: so many seconds, and so many times the baseline's need, for load on the
machine, a cold disk, a wider network. Who trains in it is seen by the control without training (tasks/control.py)."""


@dataclass(frozen=True)
class Wait:
    """For how long a judge waited for a program, in seconds on the clock."""

    ready: float
    """From its start until it was ready."""
    answering: float
    """For all of its scored answers together."""
    answers: int

    def most(self, answers: int) -> float:
        """For how long another program may be waited for until so many answers, where this is the baseline's need.

        A program may play longer episodes than the baseline, and has for each answer what the baseline had.
        """
        longer = max(answers / max(self.answers, 1), 1.0)
        return SPARE_SECONDS + TIMES * (self.ready + self.answering * longer)


@dataclass(frozen=True)
class Score:
    """The judged result of one or several training runs: a mean over units, or the reason why there is none."""

    value: float | None
    """Mean over the units in the metric's own unit; None when the judge could not score."""
    units: tuple[float, ...] = ()
    """One result per episode or question, in the order of the judge's draws, run after run."""
    se: float | None = None
    """Standard error of the mean over units (not over training runs); None below two units."""
    n: int = 0
    """Number of units averaged."""
    higher_is_better: bool = True
    error: str | None = None
    """Why there is no score, in plain words; None if there is one."""
    also: dict[str, float] = field(default_factory=dict)
    """Other metrics that the judge measured, by name; never part of the score."""
    waited: Wait | None = field(default=None, compare=False)
    """How long the program was waited for; None if the judge runs no code of the program, and for several runs."""
    echo: tuple[float, ...] = field(default=(), compare=False)
    """What the run scored on the units of another run of the same program; empty if it was not judged on them."""
    runs: tuple[Score, ...] = ()
    """The score of each of several training runs, which then hold the units; empty for a single run."""

    @classmethod
    def of(cls, units: Sequence[float], higher_is_better: bool = True) -> Score:
        """The score of per-unit results. Raises ValueError: no unit."""
        values = tuple(float(unit) for unit in units)
        counted = [value if abs(value) <= LARGEST else math.nan for value in values]  # sums of others may raise
        n, mean = len(values), statistics.fmean(counted)
        se = math.sqrt(math.fsum((value - mean) ** 2 for value in counted) / (n - 1) / n) if n > 1 else None
        return cls(mean, values, se, n, higher_is_better)

    @classmethod
    def of_sources(cls, sources: Mapping[str, Sequence[float]], weights: Mapping[str, float]) -> Score:
        """The score of per-unit results from several sources: the weighted mean of the sources' means.

        The standard error takes the sources as independent; it is None if one has a single unit. Each source's mean
        is reported as `source/<name>`. Raises ValueError: no source, other weights, or units that are no score.
        """
        if not sources or sources.keys() != weights.keys():
            raise ValueError(f"a weight for every source, got sources {list(sources)}, weights {list(weights)}")
        scores = {name: cls.of(units) for name, units in sources.items()}
        means = {name: score.value for name, score in scores.items() if score.value is not None}
        errors = [weights[name] * score.se for name, score in scores.items() if score.se is not None]
        total = math.fsum(weights.values())
        return cls(
            value=math.fsum(weights[name] * mean for name, mean in means.items()) / total,
            units=tuple(unit for score in scores.values() for unit in score.units),
            se=math.hypot(*errors) / total if len(errors) == len(scores) else None,
            n=sum(score.n for score in scores.values()),
            also={f"source/{name}": mean for name, mean in means.items()},
        )

    @classmethod
    def over(cls, scores: Sequence[Score], fewest: int | None = None) -> Score:
        """The score of one program over its training runs; missing if one of them is, or fewer than `fewest` are there.

        Its standard error is that over units; the spread of `values` is that between runs.
        """
        if len(scores) == 1:
            return scores[0]
        known = [score for score in scores if score.value is not None]
        for number, score in enumerate(scores, 1):
            if score.value is None and len(known) < (len(scores) if fewest is None else fewest):
                return cls.missing(f"run {number} of {len(scores)}: {score.error}", score.higher_is_better)
        values = [score.value for score in known if score.value is not None]
        errors = [score.se for score in known if score.se is not None]
        shared = [name for name in known[0].also if all(name in score.also for score in known)]
        return cls(
            value=statistics.mean(values),  # exact: that of equal runs is theirs
            se=math.hypot(*errors) / len(values) if len(errors) == len(values) else None,
            n=sum(score.n for score in known),
            higher_is_better=scores[0].higher_is_better,
            also={name: math.fsum(s.also[name] for s in known) / len(known) for name in shared},
            runs=tuple(scores),
        )

    @property
    def each(self) -> tuple[Score, ...]:
        """The score of each training run; of a baseline some may be missing."""
        return self.runs or (self,)

    @property
    def values(self) -> tuple[float, ...]:
        """The value of each training run that has one."""
        return tuple(score.value for score in self.each if score.value is not None)

    @classmethod
    def missing(cls, error: str, higher_is_better: bool) -> Score:
        return cls(None, higher_is_better=higher_is_better, error=error)

    @property
    def utility(self) -> float:
        """The value with its sign turned so that larger is better; minus infinity if it is missing: worse than any."""
        if self.value is None:
            return -math.inf
        return self.value if self.higher_is_better else -self.value


class Guard(BaseModel, frozen=True, extra="forbid"):
    """How much worse a metric that the judge measures besides the score may get; the objective's direction if absent:

    [guards."source/windy"]
    margin = 20
    direction = "maximize"
    """

    margin: float = Field(ge=0, allow_inf_nan=False)
    """In the metric's own unit; 0 = it must not get worse at all."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """The metric's direction; in an environment the objective's, unless stated."""

    def loss(self, now: float, before: float) -> float:
        """How much worse the metric got, in its own unit; negative where it got better."""
        return before - now if self.direction == "maximize" else now - before
