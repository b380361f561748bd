"""How good the proposers are when scores are noisy, and what a proposal costs.

    python -m benchmarks.proposers [--repetitions 200] [--startups 2 4 6 8] [--json]

Four made-up problems over a space like that of a small PPO campaign. Their true score runs from 0 to 1; what a
proposer is told is one draw of it with a noise of 0.15 (standard deviation). A campaign begins at the same ordinary
baseline. Under rule greedy its champion is the trial with the best score *as seen*, or a simpler one that is hardly
worse. The figure is the champion's *true* score after 8, 20 and 50 trials: what its user takes home, not what the luck
of the night says.

`optuna` is Optuna's TPE with all of its defaults, which is told the baseline too; `tpe, n` is ours with a Sobol design
of n points. All of them meet the same repetitions with the same noise.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

import environments
from environments import Environment
from environments.score import Score
from environments.space import Choice, Float, Int, Space
from tasks.decide import weigh
from tasks.propose import load
from tasks.rules import Tried
from tasks.rules.greedy import Greedy
from tasks.seeds import derive
from tasks.trial import History, Params, Proposal, Run, Trial, Verdict, best

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SPACE: Space = {
    "lr": Float(low=1e-4, high=3e-3, log=True, default=2e-4),
    "num_envs": Choice(values=(4, 8, 16, 32), default=4),
    "epochs": Int(low=2, high=10, default=3),
    "minibatches": Choice(values=(4, 8, 16), default=4),
    "entropy": Float(low=0.0, high=0.02, default=0.0),
    "gamma": Choice(values=(0.98, 0.99, 0.995, 0.999), default=0.99),
    "normalize": Choice(values=(False, True), default=False),
}
NOISE = 0.15
LOOKS = (8, 20, 50)
LENGTHS = (8, 100, 500)
OURS = ("random_search", "grid", "tpe")
DEFAULTS: Params = {name: parameter.default for name, parameter in SPACE.items()}
Figures = dict[str, Any]
Problem = Callable[[Params], float | None]
Lane = Callable[[str, int], list[float]]
"""Problem, repetition -> the champion's true score at each look."""


def hill(at: float, top: float, width: float) -> float:
    """1 at the top, 0.37 a width away from it."""
    return math.exp(-(((at - top) / width) ** 2))


def rate(params: Params) -> float:
    """Where the learning rate lies on its scale, 0 to 1."""
    return math.log(float(params["lr"]) / 1e-4) / math.log(30)


def work(params: Params) -> float:
    """How many gradient steps there are per sample, 0 to 1 on a log scale."""
    return math.log(float(params["epochs"]) * float(params["minibatches"]) / 8) / math.log(20)


def bump(params: Params) -> float:
    """Everything matters a little, and all of it more where the learning rate is right."""
    extras = 0.25 * bool(params["normalize"]) + 0.25 * hill(float(params["gamma"]), 0.995, 0.008)
    return hill(rate(params), 0.6, 0.3) * (0.5 * hill(work(params), 0.7, 0.4) + extras)


def ridge(params: Params) -> float:
    """The more gradient steps, the smaller the best learning rate; more environments move that, and add to it."""
    wide = math.log2(float(params["num_envs"]) / 4) / 3
    return hill(rate(params) + 0.8 * work(params), 0.9 + 0.3 * wide, 0.3) * (0.6 + 0.4 * wide)


def rate_only(params: Params) -> float:
    """A narrow hill over the learning rate; the rest does nothing."""
    return hill(rate(params), 0.65, 0.15)


def cliff(params: Params) -> float | None:
    """The bolder the better, and beyond some boldness every run crashes: a quarter of the space."""
    bold = (rate(params) + work(params)) / 2 - 0.15 * bool(params["normalize"])
    return None if bold > 0.6 else (bold + 0.15) / 0.75


PROBLEMS: dict[str, Problem] = {"bump": bump, "ridge": ridge, "rate_only": rate_only, "cliff": cliff}


def main() -> None:
    parser = argparse.ArgumentParser(description="How good the proposers are, and what a proposal costs.")
    parser.add_argument("--repetitions", type=int, default=200, help="campaigns of each proposer (200)")
    parser.add_argument("--startups", type=int, nargs="+", default=[2, 4, 6, 8], help="of tpe (2 4 6 8)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.repetitions < 2:
        parser.error(f"--repetitions must be at least 2, to have a spread, got {options.repetitions}")
    figures = measure(options.repetitions, options.startups)
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def measure(repetitions: int, startups: Sequence[int]) -> Figures:
    """Mean and standard error of the champions' true scores, and what a proposal costs."""
    lanes: dict[str, Lane] = {
        "random_search": partial(campaign, "random_search", {}),
        "optuna": optuna_campaign,
        **{f"tpe, {startup}": partial(campaign, "tpe", {"startup": startup}) for startup in startups},
    }
    scores: Figures = {}
    with ProcessPoolExecutor(initializer=settle) as pool:
        waiting = {
            (problem, name): pool.map(partial(lane, problem), range(repetitions), chunksize=10)
            for problem, (name, lane) in product(PROBLEMS, lanes.items())
        }
        for (problem, name), found in waiting.items():
            for look, values in zip(LOOKS, zip(*found, strict=True), strict=True):
                scores.setdefault(f"{problem}/{look}", {})[name] = spread(values)
    costs = {f"proposal_ms/{length}": {name: cost(name, length) for name in OURS} for length in LENGTHS}
    about = f"{repetitions} campaigns each, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}"
    return {"about": about, "champion": scores, "cost": costs}


def campaign(name: str, options: dict[str, int], problem: str, repetition: int) -> list[float]:
    """One campaign as the engine would run it: the champion's true score at each look."""
    proposer = load(name, options)

    def ask(history: History) -> Params:
        seed = derive(repetition, "propose", len(history), 1)
        suggestion = proposer.propose(SPACE, history, {}, seed)
        assert suggestion is not None
        return suggestion.params

    return follow(problem, repetition, ask)


def optuna_campaign(problem: str, repetition: int) -> list[float]:
    """The same with Optuna as it comes."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    distributions: dict[str, BaseDistribution] = {}
    for name, parameter in SPACE.items():
        if isinstance(parameter, Choice):
            distributions[name] = CategoricalDistribution(parameter.values)
        else:
            kind = IntDistribution if isinstance(parameter, Int) else FloatDistribution
            distributions[name] = kind(parameter.low, parameter.high, log=parameter.log)  # type: ignore[arg-type]
    sampler = optuna.samplers.TPESampler(seed=repetition)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial(DEFAULTS)
    asked = study.ask(distributions)

    def ask(history: History) -> Params:
        nonlocal asked
        value = history[-1].score.value  # a crash is told as a failure, which Optuna leaves out
        study.tell(asked, value, state=None if value is not None else optuna.trial.TrialState.FAIL)
        asked = study.ask(distributions)
        return dict(asked.params)

    return follow(problem, repetition, ask)


def follow(problem: str, repetition: int, ask: Callable[[History], Params]) -> list[float]:
    """Run the trials of one campaign; the champion's true score at each look."""
    noise = np.random.default_rng(repetition).normal(0.0, NOISE, LOOKS[-1] + 1)
    truth: list[float] = []
    history: History = ()
    for number in range(LOOKS[-1] + 1):
        params = ask(history) if history else DEFAULTS
        history += (decided(history, PROBLEMS[problem](params), noise[number], params, repetition),)
        if number in LOOKS:
            champion = best(history)
            value = PROBLEMS[problem](champion.proposal.params) if champion else None
            assert value is not None, "the baseline has a score, so the champion has"
            truth.append(value)
    return truth


def decided(history: History, true: float | None, noise: float, params: Params, seed: int) -> Trial:
    """The trial after `history`, as the engine would write it down."""
    number = len(history)
    run = Run(f"trials/{number:04d}", derive(seed, "train", number, 1), 12.0, "finished")
    score = Score.missing("fell off", True) if true is None else Score.of([true + noise], True)
    proposal = Proposal(params)
    verdict = weigh(history, environment(), Greedy(), Tried(number, proposal, (run,), score))
    assert isinstance(verdict, Verdict), "nothing else is asked for under this rule"
    return Trial(number, 1, number, proposal, (run,), score, verdict)


@cache
def environment() -> Environment:
    """One without guards, in which nothing has to be learned."""
    return environments.load(environments.find("cartpole"), {"allow_untrained": True})


def cost(name: str, length: int) -> dict[str, float]:
    """Milliseconds of a proposal after so many trials, the first one, which loads libraries, left out."""
    rng = np.random.default_rng(0)
    history: History = ()
    for _ in range(length):
        params = {key: parameter.sample(rng) for key, parameter in SPACE.items()}
        history += (decided(history, bump(params), rng.normal(0.0, NOISE), params, 0),)
    proposer = load(name, {})
    times = []
    for seed in range(16):
        started = time.perf_counter()
        proposer.propose(SPACE, history, {}, seed)
        times.append((time.perf_counter() - started) * 1000)
    return {"median": round(statistics.median(times[1:]), 2), "max": round(max(times[1:]), 2)}


def settle() -> None:
    """A worker's manners: the machine is others' too, and Optuna need not say what it does."""
    import optuna

    os.nice(10)
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def spread(values: Sequence[float]) -> dict[str, float]:
    error = statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": round(statistics.fmean(values), 4), "se": round(error, 4)}


def show(figures: Figures) -> None:
    console, lanes = Console(highlight=False), next(iter(figures["champion"].values()))
    title = f"true score of the champion; {figures['about']}"
    table = Table("mean (standard error)", *lanes, title=title)
    for key, row in figures["champion"].items():
        table.add_row(key, *(f"{lane['mean']:.3f} ({lane['se']:.3f})" for lane in row.values()))
    console.print(table)
    table = Table("median (maximum)", *OURS, title="milliseconds per proposal")
    for key, row in figures["cost"].items():
        table.add_row(key, *(f"{lane['median']:.1f} ({lane['max']:.1f})" for lane in row.values()))
    console.print(table)


if __name__ == "__main__":
    main()
