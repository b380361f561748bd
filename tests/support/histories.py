"""Nights for the tests: decided trials, and certificates from the scores of fresh runs. No engine, no files."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import environments
from environments import Environment
from environments.score import Guard, Score
from tasks import propose
from tasks.proposing.brief import Brief
from tasks.rules import JudgedTrial
from tasks.rules.greedy import Greedy
from tasks.stats.certificate import Certificate, Fresh, conclude
from tasks.stats.design import of_groups
from tasks.task_key import derive
from tasks.trial import EarlyStop, History, Params, Proposal, Rerun, Run, Trial, Verdict, VerdictKind, best


def scored(value: float | None, higher_is_better: bool = True, error: float | None = 2.0) -> Score:
    """The score of one training run, over 16 episodes; missing without a value."""
    if value is None:
        return Score.missing("exited with status 3", higher_is_better)
    return Score(float(value), (), error, 16, higher_is_better)


def tried(
    history: History,
    *values: float | None,
    params: Params | None = None,
    kind: VerdictKind | None = None,
    due: EarlyStop | None = None,
    reported: float | None = None,
    reruns: Sequence[tuple[int, float]] = (),
    higher_is_better: bool = True,
    wall: float = 6.0,
) -> Trial:
    """The trial after `history`, with a training run per value; decided by rule greedy unless `kind` says otherwise."""
    number, champion = len(history), best(history)
    runs = tuple(
        Run(
            f"trials/{number:04d}{f'-run-{n}' if n > 1 else ''}", 100 * number + n, 5.0, "cancelled" if due else "finished",
            started=1e9 + 10 * number + n, wall_seconds=5.5, reported=reported, due=due if n == 1 else None,
        )
        for n in range(1, max(len(values), 1) + 1)
    )  # fmt: skip
    score = Score.over([scored(v, higher_is_better) for v in values or (None,)])
    proposal = Proposal(
        {"lr": 0.1 * (number + 1)} if params is None else params, rationale="as a test says", proposer="test"
    )
    reason = "as a test says"
    if due:
        reason = due.reason
    elif score.value is None:
        kind, reason = kind or "crash", score.error or ""
    elif kind is None and champion is None:
        kind, reason = "keep", "the baseline"
    elif kind is None:
        weighed = Greedy().weigh(history, JudgedTrial(number, proposal, runs, score))
        assert isinstance(weighed, Verdict)
        kind, reason = weighed.kind, weighed.reason
    assert kind is not None
    again = tuple(
        Rerun(of, Run(f"trials/{number:04d}-again-{n}", n, 5.0, "finished"), scored(v, higher_is_better))
        for n, (of, v) in enumerate(reruns, 1)
    )
    verdict = Verdict(kind, reason, "provisional" if kind == "keep" else None)
    return Trial(number, 1, number, proposal, runs, score, verdict, wall * len(runs), again)


def night(*values: float | None, higher_is_better: bool = True, wall: float = 6.0) -> History:
    """A trial per value; one without has crashed."""
    history: History = ()
    for value in values:
        history += (tried(history, value, higher_is_better=higher_is_better, wall=wall),)
    return history


minimised = functools.partial(night, higher_is_better=False)


def certified(
    champion: int,
    mine: Sequence[float | None],
    theirs: Sequence[float | None],
    *,
    higher_is_better: bool = True,
    look: int = 1,
    on: str | None = None,
    guards: Mapping[str, tuple[Guard, float, float]] | None = None,
    error: float = 2.0,
) -> Certificate:
    """The certificate of these fresh scores.

    Args:
        on: Another environment than the campaign's.
        guards: By metric, with what the champion's and the baseline's runs have of it.
        error: Standard error of each score over its units.
    """
    arms: dict[str, Sequence[float | None]] = {"champion": mine, "baseline": theirs}
    runs = []
    for number in range(max(len(mine), len(theirs))):
        for side, arm in enumerate(("champion", "baseline")):
            if number < len(arms[arm]):
                run = Run(f"certificates/1-{arm}-{number}", 7000 + 2 * number + side, 5.0, "finished")
                score = scored(arms[arm][number], higher_is_better, error)
                also = {name: had[1 + side] + 0.1 * number for name, had in (guards or {}).items()}
                score = replace(score, also=also)
                runs.append(Fresh(run, score, "champion" if side == 0 else "baseline"))
    margins = {name: had[0] for name, had in (guards or {}).items()}
    design = of_groups(((len(mine), len(theirs)),))
    made = conclude(look, 0.05, champion, on or "quad", runs, design, guards=margins)
    return replace(made, elsewhere=on is not None)


def search(count: int, seed: int = 1, gain: float = 130.0, cancels: bool = True, sign: float = 1.0) -> History:
    """A night that climbs by `gain` from 80, with three runs of the baseline, and some trials cancelled or crashed."""
    draws, up = random.Random(seed), sign > 0
    history: History = (tried((), *(sign * (80 + draws.gauss(0, 12)) for _ in range(3)), higher_is_better=up),)
    record = history[0].score.value or 0.0
    for index in range(1, count + 1):
        value = sign * (80 + gain * min(index / (0.6 * count), 1) * draws.random() + draws.gauss(0, 14))
        fate, _ = draws.random(), draws.random()
        params: Params = {"lr": 10 ** draws.uniform(-5, -2), "layers": draws.choice([1, 2, 3])}
        due = EarlyStop(0.4, "31 at 40% of its budget, where the champion's progress was 60")
        if cancels and fate < 0.3:
            trial = tried(
                history, None, params=params, kind="cancelled", due=due, reported=value - sign * 60, higher_is_better=up
            )
        elif fate > 0.94:
            trial = tried(history, None, params=params, higher_is_better=up)
        else:
            better = sign * (value - record) > -4
            record = value if better else record
            trial = tried(history, value, params=params, kind="keep" if better else "discard", higher_is_better=up)
        history += (trial,)
    return history


@functools.cache
def undemanding() -> Environment:
    """An environment without guards, in which nothing has to be learned."""
    return environments.load(environments.find("cartpole"), {"allow_untrained": True})


def decided(
    history: History, score: float | None, params: Params, *, seconds: float = 5.0, wall: float = 6.0,
    higher_is_better: bool = True,
) -> Trial:  # fmt: skip
    """The trial after `history`, a change of the baseline's program that knew all of it; without a score a crash."""
    trial, seen = tried(history, score, params=params, wall=wall, higher_is_better=higher_is_better), len(history)
    runs = tuple(replace(run, seconds=seconds, wall_seconds=seconds) for run in trial.runs)
    proposal = replace(trial.proposal, parent=0 if seen else None, seen=seen, proposer="baseline")
    judged = trial.score if score is None else Score.of([score], higher_is_better)
    return replace(trial, proposal=proposal, runs=runs, score=judged)


def history_of(environment: Environment, trials: int) -> History:
    """A baseline and so many trials after it: the second and every third crashed, the last repeats the first."""
    history: History = (decided((), 1.0, environment.defaults),)
    random_search = propose.load("random_search", {})
    for number in range(1, trials + 1):
        suggestion = random_search.propose(Brief(environment.space, history, {}, derive(5, "propose", number, 1)))
        assert suggestion is not None
        params = environment.complete(suggestion.params)
        if number == trials > 1:
            params = history[1].proposal.params
        history += (decided(history, None if number % 3 == 2 else number % 5, params),)
    return history
