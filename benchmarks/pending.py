"""Whether proposals with many trials under way stay as different as those that are made one after the other.

    python -m benchmarks.pending [--proposers tpe random_search gp cmaes learned] [--pending 16] [--trials 20]
        [--repetitions 20] [--json]

A campaign of so many trials on the problem `bump` (benchmarks/problems.py), one after the other. From its end on

    pending   proposals that know all before them as under way, without a score
    in turn   as many, each of which is decided before the next one is made
    untold    as many with seeds of their own that know nothing of one another: what pending trials would be
              to a proposer that does not look at them

nearest    mean distance of a proposal to the nearest of the others, in the unit cube of the axes (a choice without an
           order counts 1 where it differs), with a 95 % bootstrap interval over the repetitions
ratio      to that in turn
equal      pairs of proposals with the same parameters, per repetition
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.champions import decided, proposer_of
from benchmarks.problems import DEFAULTS, NOISE, SPACE, bump
from benchmarks.proposers import interval, outcome, settle, undemanding
from tasks.proposers import Proposer
from tasks.proposing.axes import Axis, varied
from tasks.proposing.brief import Brief
from tasks.store.seeds import derive
from tasks.trial import History, Params, Proposal

PROPOSERS = ("tpe", "random_search", "gp", "cmaes", "learned")
WAYS = ("pending", "in turn", "untold")
AXES = varied(SPACE)
Figures = dict[str, Any]


class Campaign:
    """One repetition: a history, and proposals from its end on."""

    def __init__(self, proposer: Proposer, trials: int, repetition: int) -> None:
        self._proposer, self._repetition = proposer, repetition
        self._noise = np.random.default_rng(repetition)
        self.history: History = self._after((), DEFAULTS)
        for _ in range(trials):
            self.history = self._after(self.history, self._ask(self.history, {}))

    def made(self, way: str, count: int) -> list[Params]:
        history, pending, found = self.history, dict[int, Proposal](), list[Params]()
        for number in range(count):
            params = self._ask(history, pending, number)
            found.append(params)
            if way == "in turn":
                history = self._after(history, params)
            elif way == "pending":
                pending[len(history) + number] = Proposal(params)
        return found

    def _ask(self, history: History, pending: dict[int, Proposal], number: int = 0) -> Params:
        seed = derive(self._repetition, "propose", len(self.history) + number, 1)
        suggestion = self._proposer.propose(Brief(SPACE, history, pending, seed))
        assert suggestion is not None, "this space is not tried out so soon"
        return {**DEFAULTS, **suggestion.params}

    def _after(self, history: History, params: Params) -> History:
        run, score = outcome(bump(params), self._noise.normal(0.0, NOISE), len(history), self._repetition)
        return (*history, decided(history, undemanding(), params, run, score))


def nearest(proposals: Sequence[Params]) -> float:
    """The mean distance of each to the nearest of the others."""
    distances = np.full((len(proposals), len(proposals)), np.inf)
    for one, other in combinations(range(len(proposals)), 2):
        parts = [_apart(axis, proposals[one], proposals[other]) for axis in AXES]
        distances[one, other] = distances[other, one] = float(np.linalg.norm(parts))
    return float(distances.min(axis=1).mean())


def _apart(axis: Axis, one: Params, other: Params) -> float:
    first, second = (axis.number(params[axis.name]) for params in (one, other))
    return abs(axis.fraction(first) - axis.fraction(second)) if axis.is_ordered else float(first != second)


def measure(options: argparse.Namespace) -> Figures:
    settle()
    found: dict[str, Figures] = {}
    for name in options.proposers:
        proposer = proposer_of(name)
        campaigns = [Campaign(proposer, options.trials, each) for each in range(options.repetitions)]
        made = {way: [campaign.made(way, options.pending) for campaign in campaigns] for way in WAYS}
        distances = {way: np.array([nearest(each) for each in made[way]]) for way in WAYS}
        found[name] = {
            way: {
                "nearest": interval(distances[way]),
                "ratio": round(float(distances[way].mean() / distances["in turn"].mean()), 3),
                "equal": sum(a == b for each in made[way] for a, b in combinations(each, 2)) / len(campaigns),
            }
            for way in WAYS
        }
    return {"about": f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}", "proposers": found}


def main() -> None:
    parser = argparse.ArgumentParser(description="How different proposals with many trials under way are.")
    parser.add_argument("--proposers", nargs="+", default=list(PROPOSERS), help="NAME[:OPTION=VALUE,...]")
    parser.add_argument("--pending", type=int, default=16, help="proposals at once (16)")
    parser.add_argument("--trials", type=int, default=20, help="decided before (20)")
    parser.add_argument("--repetitions", type=int, default=20, help="campaigns of each proposer (20)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    found = measure(options)
    print(json.dumps(found, indent=2)) if options.json else show(found)


def show(found: Figures) -> None:
    table = Table("proposer", "way", "nearest", "ratio", "equal")
    for name, ways in found["proposers"].items():
        for way, figures in ways.items():
            mean, low, high = figures["nearest"]
            table.add_row(
                name, way, f"{mean:.3f} [{low:.3f}, {high:.3f}]", f"{figures['ratio']:.2f}", f"{figures['equal']:g}"
            )
    Console(highlight=False, width=100).print(table)


if __name__ == "__main__":
    main()
