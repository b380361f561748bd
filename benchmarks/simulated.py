"""Simulated environments for decisions: proposals with known effects, runs with known noise.

A landscape is a JSON file, of one of two kinds. Among *ideas* (the kind when none is stated) each proposal is a change
on top of its parent:

    {"kind": "ideas", "unit": 10, "p_gain": 0.12, "p_null": 0.38, "p_loss": 0.5, "base": 0, "cap": 200, "preview": 0.7,
     "noise": {"kind": "normal", "sd": 25}}

An idea's true effect on the incumbent, of true value m, is with p_gain a gain of (u/2 + Exp(2u)) times
clip((cap - m) / (cap - base), 0, 1), never above cap - m; with p_null nothing; with p_loss a loss of Exp(3u). Exp(x)
has mean x.

Among *points* each proposal is a point of a fixed function f of `dims` parameters from 0 to 1, and a real proposer
chooses it:

    {"kind": "points", "unit": 10.0, "dims": 4, "length": 0.3, "height": 10, "baseline": 0.8,
     "noise": {"kind": "normal", "sd": 2.5, "sd_at_best": 6.5}, "part": {"0.3": 0.7}}

f is drawn for each campaign from a Gaussian process (squared exponential, length scale `length` in every dimension) on
4,096 scrambled Sobol points; its mean is 0, and `height` units lie between its first and 99th percentile. A proposal
stands for the point nearest to it; the baseline is better than the share `baseline` of the points. A run scores
f + N(0, s). s, in units, grows linearly from `sd` at the baseline's
value to `sd_at_best` at the best point's, and is `sd` below. `part` says what a run shows after a share of its budget:
a value whose rank correlation with f over the points is as stated; without it, nothing is shown before the end. In a
campaign without effects f is 0 everywhere, and s is `sd`.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from scipy import special  # type: ignore[import-untyped]

from environments.plugins import Refused
from environments.space import Float, Space
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief
from tasks.trial import TWENTIETHS, Curve, History, Proposal, best

PREVIEW_NOISE = 1.3
"""Noise of progress at the look, in sds of a run's score."""
LOOK = 0.4
"""Share of the budget at which the progress of an idea is seen."""
POINTS = 4096
PROPOSERS = ("tpe", "random_search", "gp", "cmaes")
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Array = NDArray[np.float64]


class Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Normal(Stated):
    """Returns: normal between runs."""

    kind: Literal["normal"]
    sd: Positive


class Ideas(Stated):
    """What can be found on top of the champion, and how hard it is to see."""

    kind: Literal["ideas"] = "ideas"
    unit: Positive
    p_gain: Share
    p_null: Share
    p_loss: Share
    base: float
    cap: float
    preview: float
    """How much of an effect shows in the progress at the look."""
    noise: Normal

    @model_validator(mode="after")
    def _adds_up(self) -> Ideas:
        if abs(self.p_gain + self.p_null + self.p_loss - 1) > 1e-6 or self.cap <= self.base:
            raise ValueError("p_gain + p_null + p_loss must be 1, and cap must lie above base")
        return self


class Growing(Stated):
    """Returns whose spread grows with their mean. In units."""

    kind: Literal["normal"]
    sd: Positive
    sd_at_best: Positive


class Points(Stated):
    """A fixed function of the parameters, and how hard it is to see."""

    kind: Literal["points"]
    unit: Positive
    dims: int = Field(ge=1, le=50)
    length: Positive
    height: Positive
    """Units between the first and the 99th percentile."""
    baseline: Share
    noise: Growing
    part: Mapping[Annotated[float, Field(gt=0, lt=1)], Annotated[float, Field(ge=-1, le=1)]] = {}
    """Rank correlation of what is shown after a share of the budget."""

    @model_validator(mode="after")
    def _is_seen_in_twentieths(self) -> Points:
        for share in self.part:
            if abs(share * TWENTIETHS - round(share * TWENTIETHS)) > 1e-9:
                raise ValueError(f"part: progress is seen at twentieths of the budget, got {share:g}")
        return self


Landscape = Ideas | Points


def read(path: Path) -> Landscape:
    """A landscape from its file. Raises Refused if it cannot be read, or is none."""
    try:
        stated = json.loads(path.read_bytes())
        kind = stated.get("kind", "ideas") if isinstance(stated, dict) else None
        if kind not in ("ideas", "points"):
            raise Refused(f"{path}: a landscape is an object whose kind is ideas or points, got {kind!r}")
        return Ideas.model_validate(stated) if kind == "ideas" else Points.model_validate(stated)
    except OSError as wrong:
        raise Refused(f"{path}: {wrong.strerror}") from wrong
    except ValidationError as error:
        raise Refused(f"{path}: {error}") from error
    except json.JSONDecodeError as wrong:
        raise Refused(f"{path}: no JSON: {wrong}") from wrong


@dataclass(frozen=True)
class Configuration:
    """A program and its parameters, with what is true of it."""

    level: float
    """Its true value m: the expectation of a run's score."""
    sd: float
    standing: float = 0.0
    """Of a point: the normal score of its rank among all."""


class Tried(NamedTuple):
    proposal: Proposal
    configuration: Configuration


class Seen(NamedTuple):
    """One fresh run."""

    score: float
    curve: Curve
    """Progress at each twentieth of the budget, up to the last one at which something is shown."""


class World(ABC):
    """One campaign's environment: everything that is drawn, drawn from one generator."""

    baseline: Tried
    edits: ClassVar[bool] = True
    """Whether proposals are edits."""

    def __init__(self, rng: Generator) -> None:
        self._rng = rng
        self.seed = int(rng.integers(2**31))
        """For whatever else has to be drawn."""

    @abstractmethod
    def propose(self, history: History, known: Mapping[int, Configuration]) -> Tried | None:
        """The next trial, given the configurations of earlier ones; None if nothing is left to try."""

    @abstractmethod
    def run(self, one: Configuration, questions: str) -> Seen:
        """One fresh run on a set of questions. Progress is independent of the score, given the configuration."""

    def truth(self, one: Configuration, questions: str) -> float:
        """The expectation of a run's score."""
        return one.level

    def _normal(self, one: Configuration) -> float:
        """A score whose noise is normal."""
        return float(one.level + one.sd * self._rng.standard_normal())


def world_of(landscape: Landscape, rng: Generator, null: bool = False, proposer: Proposer | None = None) -> World:
    """A campaign's world; `proposer` is needed among points."""
    if isinstance(landscape, Ideas):
        return IdeasWorld(landscape, rng, null)
    assert proposer is not None, "points are chosen by a proposer"
    return PointsWorld(landscape, proposer, rng, null)


class IdeasWorld(World):
    """Every proposal is an edit of the champion, with an effect on top of it."""

    def __init__(self, landscape: Ideas, rng: Generator, null: bool) -> None:
        super().__init__(rng)
        self.landscape = landscape
        self._null = null
        self.baseline = Tried(Proposal({}), self._configured(landscape.base))

    def propose(self, history: History, known: Mapping[int, Configuration]) -> Tried:
        """Something new on top of the incumbent."""
        champion = best(history)
        assert champion is not None, "the baseline was kept"
        before = known[champion.number].level
        edit = Proposal({}, edit=f"+change {len(history)}", parent=champion.number)  # nothing but its effect matters
        return Tried(edit, self._configured(before + self._effect(before)))

    def run(self, one: Configuration, questions: str) -> Seen:
        return Seen(self._normal(one), (None,) * (round(LOOK * TWENTIETHS) - 1) + (self._progress(one),))

    def _progress(self, one: Configuration) -> float:
        shown = self.landscape.preview * one.level
        return float(shown + PREVIEW_NOISE * self.landscape.noise.sd * self._rng.standard_normal())

    def _configured(self, level: float) -> Configuration:
        return Configuration(level, self.landscape.noise.sd)

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


@dataclass(frozen=True)
class Grid:
    """The points of a fixed landscape, and the functions on them. Shapes (POINTS, dims), (POINTS, POINTS)."""

    points: Array
    factor: Array
    """Cholesky factor of the covariance: times standard normals it is a draw."""

    def nearest(self, point: Sequence[float]) -> int:
        return int(((self.points - np.asarray(point)) ** 2).sum(axis=1).argmin())


@cache
def grid_of(dims: int, length: float) -> Grid:
    """The same points for all campaigns. It takes seconds and 128 MiB: make it before processes are forked."""
    from scipy.stats import qmc  # type: ignore[import-untyped]

    points = qmc.Sobol(dims, scramble=True, rng=0).random(POINTS)
    square = (points**2).sum(axis=1)
    apart = np.maximum(square[:, None] + square[None, :] - 2 * points @ points.T, 0.0)
    covariance = np.exp(-apart / (2 * length**2))
    covariance[np.diag_indices(POINTS)] += 1e-6  # neighbours are alike to more digits than a float has
    return Grid(points, np.linalg.cholesky(covariance))


class PointsWorld(World):
    """Every proposal is a point of one function, chosen by a real proposer."""

    edits: ClassVar[bool] = False

    def __init__(self, landscape: Points, proposer: Proposer, rng: Generator, null: bool) -> None:
        super().__init__(rng)
        self.landscape, self._proposer = landscape, proposer
        self._grid = grid_of(landscape.dims, landscape.length)
        # Without effects any order will do. einsum, as BLAS would start threads in every process.
        luck = rng.standard_normal(POINTS)
        drawn = luck if null else np.einsum("ij,j->i", self._grid.factor, luck)
        ranks = np.empty(POINTS)
        ranks[np.argsort(drawn)] = np.arange(POINTS)
        self._standing = special.ndtri((ranks + 0.5) / POINTS)
        low, high = np.quantile(drawn, [0.01, 0.99])
        values = (drawn - drawn.mean()) * landscape.height * landscape.unit / (high - low)
        first = int(np.argsort(drawn)[min(round(landscape.baseline * POINTS), POINTS - 1)])
        self._sd = values.std() or 1.0
        noise, rise = landscape.noise, np.zeros(POINTS)
        if null:
            values = np.zeros(POINTS)
            self._standing = np.zeros(POINTS)
        elif (top := values.max()) > values[first]:
            rise = np.clip((values - values[first]) / (top - values[first]), 0.0, 1.0)
        self._values = values
        self._sds = (noise.sd + (noise.sd_at_best - noise.sd) * rise) * landscape.unit
        self._space: Space = {f"x{axis}": Float(low=0.0, high=1.0, default=0.5) for axis in range(landscape.dims)}
        params = dict(zip(self._space, self._grid.points[first].tolist(), strict=True))
        self.baseline = Tried(Proposal(params), self._at(first))

    def propose(self, history: History, known: Mapping[int, Configuration]) -> Tried | None:
        brief = Brief(self._space, history, seed=int(self._rng.integers(2**31)))
        found = self._proposer.propose(brief)
        if found is None:
            return None
        place = self._grid.nearest([float(found.params[name]) for name in self._space])
        return Tried(Proposal(dict(found.params), parent=0, seen=len(history)), self._at(place))

    def run(self, one: Configuration, questions: str) -> Seen:
        return Seen(self._normal(one), self._progress(one))

    def _at(self, place: int) -> Configuration:
        return Configuration(float(self._values[place]), float(self._sds[place]), float(self._standing[place]))

    def _progress(self, one: Configuration) -> Curve:
        """At each share a fresh value, which stands until the next."""
        curve: list[float | None] = []
        for share, rank in sorted(self.landscape.part.items()):
            at = round(share * TWENTIETHS)
            curve += [curve[-1] if curve else None] * (at - 1 - len(curve))
            straight = 2 * math.sin(math.pi * rank / 6)  # Pearson's correlation of normals with this rank correlation
            drawn = straight * one.standing + math.sqrt(1 - straight**2) * self._rng.standard_normal()
            curve.append(float(self._sd * drawn))
        return tuple(curve)
