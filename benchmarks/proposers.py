"""How good the proposers are at equal budget when scores are noisy, and what a proposal costs.

    python -m benchmarks.proposers [--proposers tpe gp cmaes:sigma=0.3 optuna ...] [--problems bump rugged ...]
        [--trials 50] [--repetitions 20] [--plot FILE.png] [--json]

Six made-up problems (benchmarks/problems.py) whose true score is known, some of them rugged or with regions where
every run crashes; benchmarks/search_hours.py is about real ones. A campaign begins at the same ordinary baseline. Under
rule greedy its champion is the trial with the best score *as seen*, or a simpler one that is hardly worse. The figures
are about the champion's *true* score: what its user takes home, not what the luck of the night says.

    area     its mean over all trials of the campaign, as a share of the best known
    end      what it is after the last one
    to 90 %  trials until it first was 90 % of the best known; one more than there were where it never was
    reached  share of the campaigns in which it was
    gain     the area less that of random search in the same repetitions

Random search is the best of n for numbers: n draws that know nothing of each other. `optuna` is Optuna's TPE with all
of its defaults, which is told the baseline too. All of them meet the same repetitions with the same noise; intervals
are 95 % bootstrap intervals over the repetitions. `all made up` is the mean over the problems in each repetition.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import environments
from benchmarks.champions import PLACE, asker, champions, decided, proposer_of
from benchmarks.problems import DEFAULTS, NOISE, PROBLEMS, SPACE, bump
from environments import Environment, plugins
from environments.score import Score
from tasks.proposing.brief import Brief
from tasks.store.seeds import derive
from tasks.trial import History, Params, Run

NUMERIC = ("random_search", "tpe", "cmaes", "gp", "learned")
CHANCE = "random_search"
OVERALL = "all made up"
LENGTHS = (20, 200, 500)
ENOUGH = 0.9
RESAMPLES = 4000
Curves = NDArray[np.float64]
"""True scores of champions as shares of the best known: by problem, repetition and trial, the baseline's first."""
Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="How good the proposers are, and what a proposal costs.")
    known = [name for name in NUMERIC if name in plugins.names(PLACE)]
    parser.add_argument("--proposers", nargs="+", default=[*known, "optuna"], help="NAME[:OPTION=VALUE,...]")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--trials", type=int, default=50, help="of a campaign, the baseline not counted (50)")
    parser.add_argument("--repetitions", type=int, default=20, help="campaigns of each proposer (20)")
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.repetitions < 2:
        parser.error("repetitions must be at least 2, to have a spread")
    figures = measure(options)
    if options.plot:
        from benchmarks.curves import draw

        draw(figures, options.plot)
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def measure(options: argparse.Namespace) -> Figures:
    """Everything that was asked for, and where and when it was measured."""
    lanes: list[str] = options.proposers
    problems: dict[str, dict[str, Curves]] = {}
    with ProcessPoolExecutor(initializer=settle) as pool:
        waiting = {
            (problem, lane): pool.map(partial(campaign, lane, problem, options.trials), range(options.repetitions))
            for lane, problem in product(lanes, options.problems)
        }
        for (problem, lane), found in waiting.items():
            problems.setdefault(problem, {})[lane] = np.array([list(found)])
    if len(problems) > 1:
        problems[OVERALL] = {lane: np.concatenate([each[lane] for each in problems.values()]) for lane in lanes}
    return {
        "about": f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}",
        "problems": {problem: compared(found) for problem, found in problems.items()},
        "proposal_ms": {length: {lane: cost(lane, length) for lane in ours(lanes)} for length in LENGTHS},
    }


def ours(lanes: Sequence[str]) -> list[str]:
    return [lane for lane in lanes if lane != "optuna"]


def campaign(lane: str, problem: str, trials: int, repetition: int) -> list[float]:
    """One campaign on a made-up problem: the champion's true score after every trial."""
    noise = np.random.default_rng(repetition).normal(0.0, NOISE, trials + 1)

    def told(number: int, params: Params) -> tuple[Run, Score]:
        return outcome(PROBLEMS[problem](params), noise[number], number, repetition)

    truth = []
    for params in champions(asker(lane, SPACE, repetition), told, undemanding(), DEFAULTS, trials):
        value = PROBLEMS[problem](params)
        assert value is not None, "what has a score does not crash"
        truth.append(value)
    return truth


def outcome(true: float | None, noise: float, number: int, seed: int) -> tuple[Run, Score]:
    """What a campaign is told of a trial."""
    run = Run(f"trials/{number:04d}", derive(seed, "train", number, 1), 12.0, "finished")
    return run, Score.missing("fell off", True) if true is None else Score.of([true + noise], True)


@cache
def undemanding() -> Environment:
    """One without guards, in which nothing has to be learned."""
    return environments.load(environments.find("cartpole"), {"allow_untrained": True})


def compared(found: Mapping[str, Curves]) -> Figures:
    """The figures of every lane on one problem."""
    return {lane: figures_of(curves, found.get(CHANCE)) for lane, curves in found.items()}


def figures_of(curves: Curves, chance: Curves | None) -> Figures:
    """What the table and the picture show of one lane; every figure but a share with its interval."""
    enough = curves >= ENOUGH
    first = np.where(enough.any(axis=2), enough.argmax(axis=2), curves.shape[2])
    area = curves[:, :, 1:].mean(axis=(0, 2))
    figures = {
        "campaigns": curves.shape[1],
        "area": interval(area),
        "end": interval(curves[:, :, -1].mean(axis=0)),
        "to_90": interval(first.mean(axis=0)),
        "reached": round(float(enough.any(axis=2).mean()), 4),
        "curve": [interval(column) for column in curves.mean(axis=0).T],
    }
    if chance is not None:
        figures["gain"] = interval(area - chance[:, :, 1:].mean(axis=(0, 2)))
    return figures


def interval(values: NDArray[np.float64]) -> list[float]:
    """The mean over the repetitions, and the ends of its 95 % bootstrap interval."""
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return [round(float(value), 4) for value in (values.mean(), low, high)]


def cost(lane: str, length: int) -> dict[str, float]:
    """CPU milliseconds of a proposal after so many trials, the first one, which loads libraries, left out.

    All of them compute on one thread, so this is what a proposal takes on a machine with nothing else to do.
    """
    rng = np.random.default_rng(0)
    history: History = ()
    for number in range(length):
        params = {name: parameter.sample(rng) for name, parameter in SPACE.items()}
        run, score = outcome(bump(params), rng.normal(0.0, NOISE), number, 0)
        history += (decided(history, undemanding(), params, run, score),)
    proposer, times = proposer_of(lane), []
    for seed in range(12):
        started = time.process_time()
        proposer.propose(Brief(SPACE, history, {}, seed))
        times.append((time.process_time() - started) * 1000)
    return {"median": round(statistics.median(times[1:]), 2), "max": round(max(times[1:]), 2)}


def settle() -> None:
    """A worker's manners: the machine is others' too, and Optuna need not say what it does."""
    import optuna

    os.nice(10)
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def show(figures: Figures) -> None:
    console = Console(highlight=False, width=140)
    for problem, lanes in figures["problems"].items():
        campaigns, trials = next((lane["campaigns"], len(lane["curve"]) - 1) for lane in lanes.values())
        title = f"{problem}: {campaigns} repetitions of {trials} trials; {figures['about']}"
        table = Table("mean [95 %]", "area", "gain", "end", "to 90 %", "reached", title=title)
        for lane, row in lanes.items():
            gain = "" if lane == CHANCE or "gain" not in row else words(row["gain"], "+.3f")
            name = f"{lane} (best of n)" if lane == CHANCE else lane
            shown = (words(row["area"]), gain, words(row["end"]), words(row["to_90"], ".1f"))
            table.add_row(name, *shown, f"{row['reached']:.2f}")
        console.print(table)
    lengths = figures["proposal_ms"]
    table = Table(
        "median (maximum)", *(f"{length} trials" for length in lengths), title="CPU milliseconds per proposal"
    )
    for lane in next(iter(lengths.values())):
        cells = (lengths[length][lane] for length in lengths)
        table.add_row(lane, *(f"{cell['median']:.1f} ({cell['max']:.1f})" for cell in cells))
    console.print(table)


def words(found: Sequence[float], form: str = ".3f") -> str:
    mean, low, high = (format(value, form) for value in found)
    return f"{mean} [{low}, {high}]"


if __name__ == "__main__":
    main()
