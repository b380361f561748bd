"""Campaigns replayed on a table of real RL runs: other people's configurations, seeds and learning curves.

A table is a CSV file, packed or not, with the columns `config`, `seed`, `at_STEPS` (the return after so many steps; the
last is that of the whole budget, and higher is better) and a column for each hyperparameter. Figures are in the table's
unit: the distance from the median configuration to the best, both by the mean of their seeds.

A proposal takes the configuration that is nearest to it and was not tried yet: numbers are compared by rank, categories
by equality; a random one takes any. A run draws one of the configuration's seeds with replacement and has that seed's
score and curve. True is the mean of its seeds. In a campaign without effects every configuration is the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.simulated import Configuration, Seen, Tried, World
from environments.plugins import Refused
from environments.space import Choice, Float, Space
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief
from tasks.trial import TWENTIETHS, History, Proposal

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Table:
    """A problem's runs. Shapes: scores (configurations, seeds), curves (configurations, seeds, points)."""

    name: str
    scores: Array
    curves: Array
    params: pd.DataFrame
    """A row for each configuration: ranks from 0 to 1 of numbers, texts of categories."""
    baseline: float
    """The share of configurations that are worse than the baseline."""
    unit: float = 1.0
    kind: ClassVar[str] = "table"

    @cached_property
    def means(self) -> Array:
        return np.asarray(self.scores.mean(axis=1))

    @cached_property
    def first(self) -> int:
        """The baseline's number."""
        place = min(round(self.baseline * len(self.means)), len(self.means) - 1)
        return int(np.argsort(self.means, kind="stable")[place])

    @cached_property
    def space(self) -> Space:
        """The hyperparameters, in ranks, with the baseline's as defaults."""
        own = self.params.iloc[self.first]
        return {
            name: Float(low=0.0, high=1.0, default=float(own[name]))
            if values.dtype.kind == "f"
            else Choice(values=tuple(sorted(set(values))), default=own[name])
            for name, values in self.params.items()
        }

    def distances(self, params: Mapping[str, object]) -> Array:
        """From a point of the space to every configuration; shape (configurations,)."""
        away = np.zeros(len(self.params))
        for name, values in self.params.items():
            other = params[str(name)]
            away += (values != other) if isinstance(other, str) else (values - other) ** 2
        return away


def read_table(path: Path, baseline: float) -> Table:
    """A table from its file. Raises Refused: it cannot be read, or is none."""
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as wrong:
        raise Refused(f"{path}: {wrong}") from wrong
    points = [name for name in rows.columns if name.startswith("at_")]
    if not points or not {"config", "seed"} <= set(rows.columns):
        raise Refused(f"{path}: a table has the columns config, seed and at_STEPS, got {', '.join(rows.columns[:6])}")
    rows = rows.sort_values(["config", "seed"])
    counts = rows.groupby("config").size()
    if counts.nunique() != 1:
        raise Refused(f"{path}: every configuration needs as many seeds, got {counts.min()} to {counts.max()}")
    curves = rows[points].to_numpy(float).reshape(len(counts), counts.iloc[0], len(points))
    means = curves[:, :, -1].mean(axis=1)
    unit = means.max() - np.median(means)
    if not unit > 0:
        raise Refused(f"{path}: no configuration is better than the median one, so nothing can be found in it")
    params = rows.drop_duplicates("config").drop(columns=["config", "seed", *points]).reset_index(drop=True)
    params = params.loc[:, params.nunique(dropna=False) > 1]
    for name in params:
        values = params[name]
        if pd.api.types.is_numeric_dtype(values) and values.dtype.kind != "b" and values.nunique() > 2:
            ranks = values.rank()
            params[name] = ((ranks - 1) / max(ranks.max() - 1, 1)).fillna(0.5)  # where it does not apply
        else:
            params[name] = values.astype(str)
    return Table(path.name.partition(".")[0], curves[:, :, -1] / unit, curves / unit, params, baseline)


@dataclass(frozen=True)
class Row(Configuration):
    """A configuration of a table, by its number."""

    number: int = 0


class TableWorld(World):
    """Every proposal is a configuration of the table, chosen by a real proposer."""

    edits: ClassVar[bool] = False

    def __init__(self, table: Table, proposer: Proposer | None, rng: Generator, null: bool) -> None:
        """`proposer`: None takes any configuration that was not tried."""
        super().__init__(rng)
        self.table, self._proposer, self._null = table, proposer, null
        self.baseline = Tried(Proposal(self._params(table.first)), self._at(table.first))
        self._left = set(range(len(table.means))) - {table.first}

    def propose(self, history: History, known: Mapping[int, Configuration]) -> Tried | None:
        if not self._left:
            return None
        left, drawn = sorted(self._left), int(self._rng.integers(2**31))
        found = self._proposer.propose(Brief(self.table.space, history, seed=drawn)) if self._proposer else None
        number = left[int(self.table.distances(found.params)[left].argmin()) if found else drawn % len(left)]
        self._left.discard(number)
        # The point that was asked for, not the configuration's: a search that misses it would ask for it again.
        params = dict(found.params) if found else self._params(number)
        return Tried(Proposal(params, parent=0, seen=len(history)), self._at(number))

    def run(self, one: Configuration, questions: str) -> Seen:
        assert isinstance(one, Row), "it is of this table"
        scores = self.table.scores[one.number]
        seed = int(self._rng.integers(len(scores)))
        points = self.table.curves[one.number, seed]
        # At a twentieth between two points stands the earlier one.
        at = [place * len(points) // TWENTIETHS for place in range(1, TWENTIETHS + 1)]
        return Seen(float(scores[seed]), tuple(float(points[place - 1]) if place else None for place in at))

    def truth(self, one: Configuration, questions: str) -> float:
        return one.level

    def _at(self, number: int) -> Row:
        real = self.table.first if self._null else number
        return Row(float(self.table.means[real]), float(self.table.scores[real].std(ddof=1)), number=real)

    def _params(self, number: int) -> dict[str, float | str]:
        own = self.table.params.iloc[number]
        return {str(name): value if isinstance(value, str) else float(value) for name, value in own.items()}
