"""Simulated environments for decisions: ideas with known effects, runs with known noise.

A landscape is a JSON file:

    {"unit": 10, "p_gain": 0.12, "p_null": 0.38, "p_loss": 0.5, "base": 0, "cap": 200, "preview": 0.7,
     "noise": {"kind": "normal", "sd": 25, "collapse": 0.1, "sd_spread": 0}}

    {"unit": 0.01, ..., "noise": {"kind": "binomial", "questions": 200, "phi": 0.6, "run_sd": 0.015}}

An idea's true effect on the incumbent, of true value m, is with p_gain a gain of (u/2 + Exp(2u)) times
clip((cap - m) / (cap - base), 0, 1), never above cap - m; with p_null nothing; with p_loss a loss of Exp(3u). Exp(x)
has mean x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy import special  # type: ignore[import-untyped]

from environments import plugins
from environments.plugins import Refused

PREVIEW_NOISE = 1.3
"""Noise of progress at the look, in sds of a run's score."""
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Binomial(Stated):
    """Questions answered right or wrong, the same ones in every run of a set."""

    kind: Literal["binomial"]
    questions: int = Field(ge=1)
    phi: float = Field(ge=0, lt=1)
    """Correlation of the answers to one question between runs."""
    run_sd: float = Field(ge=0)
    """Between runs, in the mean over questions."""

    def sd(self, base: float) -> float:
        return math.sqrt(self.run_sd**2 + base * (1 - base) * (1 - self.phi) / self.questions)


class Normal(Stated):
    """Returns: normal between runs, with a collapse now and then."""

    kind: Literal["normal"]
    sd: Positive
    collapse: Share = 0.0
    """Share of runs that end Exp(3 sd) lower."""
    sd_spread: float = Field(default=0.0, ge=0)
    """Of the logarithm of the sd, between configurations."""


class Landscape(Stated):
    """What can be found, and how hard it is to see."""

    unit: Positive
    p_gain: Share
    p_null: Share
    p_loss: Share
    base: float
    cap: float
    preview: float
    """How much of an effect shows in the progress at the look."""
    noise: Binomial | Normal = Field(discriminator="kind")

    @classmethod
    def read(cls, path: Path) -> Landscape:
        """A landscape from its file.

        Raises:
            Refused: it cannot be read, or is none.
        """
        try:
            found = cls.model_validate_json(path.read_bytes())
        except OSError as wrong:
            raise Refused(f"{path}: {wrong.strerror}") from wrong
        except ValidationError as error:
            raise plugins.explain(error, str(path), cls.model_fields) from error
        if abs(found.p_gain + found.p_null + found.p_loss - 1) > 1e-6 or found.cap <= found.base:
            raise Refused(f"{path}: p_gain + p_null + p_loss must be 1, and cap must lie above base")
        return found

    @property
    def sd(self) -> float:
        """Standard deviation between runs of the baseline, collapses left out."""
        return self.noise.sd if isinstance(self.noise, Normal) else self.noise.sd(self.base)


class Configuration:
    """A program and its parameters, with what is true of it."""

    def __init__(self, level: float, sd: float) -> None:
        self.level = level
        """Its true value m."""
        self.sd = sd


class World:
    """One campaign's environment: everything that is drawn, drawn from one generator."""

    def __init__(self, landscape: Landscape, rng: Generator, null: bool = False) -> None:
        self.landscape = landscape
        self._rng = rng
        self._null = null
        self._difficulty: dict[str, NDArray[np.float64]] = {}
        self.baseline = self._configured(landscape.base)

    def idea(self, incumbent: Configuration) -> Configuration:
        """Something new on top of the incumbent."""
        return self._configured(incumbent.level + self._effect(incumbent.level))

    def run(self, one: Configuration, questions: str) -> tuple[float, float]:
        """One fresh run: its score on a set of questions, and its progress at the look.

        Progress is independent of the score, given the configuration.
        """
        return self._score(one, questions), self._progress(one)

    def _score(self, one: Configuration, questions: str) -> float:
        noise = self.landscape.noise
        if isinstance(noise, Normal):
            collapsed = self._rng.random() < noise.collapse
            drop = self._rng.exponential(3 * one.sd) if collapsed else 0.0
            return float(one.level + one.sd * self._rng.standard_normal() - drop)
        right = self._chances(noise, one.level, questions, noise.run_sd / 0.3989 * self._rng.standard_normal())
        return float((self._rng.random(noise.questions) < right).mean())

    def _progress(self, one: Configuration) -> float:
        shown = self.landscape.preview * one.level
        return float(shown + PREVIEW_NOISE * self.landscape.sd * self._rng.standard_normal())

    def truth(self, one: Configuration, questions: str) -> float:
        """The expectation of a run's score."""
        noise = self.landscape.noise
        if isinstance(noise, Normal):
            return one.level - noise.collapse * 3 * one.sd
        between = math.sqrt(1 - self._shared(noise) + (noise.run_sd / 0.3989) ** 2)
        return float(special.ndtr(self._margin(noise, one.level, questions) / between).mean())

    def spares(self, one_in: int) -> bool:
        return bool(self._rng.random() < 1 / one_in)

    @cached_property
    def order(self) -> int:
        """A seed for whatever else has to be drawn."""
        return int(self._rng.integers(2**31))

    def _configured(self, level: float) -> Configuration:
        noise = self.landscape.noise
        spread = noise.sd_spread if isinstance(noise, Normal) else 0.0
        return Configuration(level, self.landscape.sd * math.exp(spread * self._rng.standard_normal()))

    def _effect(self, level: float) -> float:
        its, unit = self.landscape, self.landscape.unit
        if self._null:
            return 0.0
        draw = self._rng.random()
        if draw < its.p_gain:
            room = min(max((its.cap - level) / (its.cap - its.base), 0.0), 1.0)
            gain = (0.5 * unit + self._rng.exponential(2 * unit)) * room
            return float(min(gain, max(its.cap - level, 0.0)))
        return 0.0 if draw < its.p_gain + its.p_null else -float(self._rng.exponential(3 * unit))

    def _chances(self, noise: Binomial, level: float, questions: str, run: float) -> NDArray[np.float64]:
        """The probability of each right answer in one run."""
        margin = self._margin(noise, level, questions) + run
        return np.asarray(special.ndtr(margin / math.sqrt(1 - self._shared(noise))))

    def _margin(self, noise: Binomial, level: float, questions: str) -> NDArray[np.float64]:
        if questions not in self._difficulty:
            self._difficulty[questions] = self._rng.standard_normal(noise.questions)
        known = special.ndtri(min(max(level, 0.01), 0.99))
        return np.asarray(known - math.sqrt(self._shared(noise)) * self._difficulty[questions])

    def _shared(self, noise: Binomial) -> float:
        """Correlation of the latent answers for which the answers themselves correlate by phi."""
        return math.sin(math.pi * noise.phi / 2)


class Recorded(World):
    """A campaign in which every idea is the baseline itself: its runs are drawn from real ones, with replacement."""

    def __init__(self, runs: Sequence[tuple[float, float]], rng: Generator) -> None:
        """`runs`: the score of each, and its progress at the look, both in goodness."""
        self._rng = rng
        self._runs = runs
        self.baseline = Configuration(float(np.mean([score for score, _ in runs])), 0.0)

    def idea(self, incumbent: Configuration) -> Configuration:
        return incumbent

    def run(self, one: Configuration, questions: str) -> tuple[float, float]:
        return self._runs[self._rng.integers(len(self._runs))]

    def truth(self, one: Configuration, questions: str) -> float:
        return one.level
