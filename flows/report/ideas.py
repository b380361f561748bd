"""What to try next: a longer budget where the champion was still rising, and the points that TPE would try. Guesses,
not measurements."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from environments import Environment
from tasks.describe import short_value
from tasks.proposers.tpe import Tpe
from tasks.proposing.brief import Brief
from tasks.trial import History, best

FEWEST, POINTS = 6, 3
"""Scored trials that TPE needs, and points that are told."""
RISING = 0.1
"""A champion is still rising if the last fifth of its budget brought this share of its whole rise."""


@dataclass(frozen=True)
class Idea:
    words: str
    why: str
    command: str


def ideas(environment: Environment, history: History, run: str, attempt: str) -> tuple[Idea, ...]:
    """At most a handful, the most promising first.

    Args:
        run: The command that runs the campaign's search again under another name.
        attempt: The command that runs the champion's program once, but for `--params`.
    """
    return (*_longer_budget(environment, history, run), *_points(environment, history, attempt))


def _longer_budget(environment: Environment, history: History, run: str) -> Iterator[Idea]:
    champion = best(history)
    curve = [value for value in (champion.runs[-1].curve if champion and champion.runs else ()) if value is not None]
    if champion is None or len(curve) < 15:
        return
    sign = 1 if champion.score.higher_is_better else -1
    whole, last = sign * (curve[-1] - curve[0]), sign * (curve[-1] - curve[-5])
    if 0 < RISING * whole < last:
        seconds = 2 * environment.budget_seconds
        steps = f" --set budget_steps={2 * environment.budget_steps:g}" if environment.budget_steps else ""
        words = f"A longer budget: {seconds:g} s instead of {environment.budget_seconds:g} s."
        why = f"Trial {champion.number} was still improving when its budget was used up: the last fifth of it brought "
        yield Idea(
            words, f"{why}{last / whole:.0%} of its whole rise.", f"{run} --set budget_seconds={seconds:g}{steps}"
        )


def _points(environment: Environment, history: History, attempt: str) -> Iterator[Idea]:
    """What TPE would try next."""
    scored = [trial for trial in history if trial.score.value is not None]
    brief = Brief(environment.space, history)
    for number in range(len(history), len(history) + POINTS if len(scored) >= FEWEST else 0):
        suggestion = Tpe().propose(brief)
        if suggestion is None:
            return
        values = ", ".join(f"{name} = {short_value(value)}" for name, value in suggestion.params.items())
        command = f"{attempt} --params {shlex.quote(json.dumps(suggestion.params))}"
        yield Idea(values, f"Not tried yet: {suggestion.rationale}.", command)
        brief = brief.beside(number, suggestion)
