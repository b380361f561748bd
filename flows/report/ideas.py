"""What to try next: a longer budget where the champion was still rising, a longer search where it still found better,
and the points that TPE would try. Guesses, not measurements."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from environments import Environment
from tasks.describe import short_value
from tasks.proposers.tpe import Tpe
from tasks.proposing.brief import Brief
from tasks.trial import History, best, budgets_used, trials_before

FEWEST, POINTS = 6, 3
"""Scored trials that TPE needs, and points that are told."""
RISING = 0.1
"""A champion is still rising if the last fifth of its budget brought this share of its whole rise."""
LATE = 0.7
"""A search still found better if its champion came after this share of its trials."""


@dataclass(frozen=True)
class Idea:
    words: str
    why: str
    command: str = ""


def ideas(
    environment: Environment, history: History, document: Mapping[str, Any], run: str, attempt: str
) -> tuple[Idea, ...]:
    """At most a handful, the most promising first.

    Args:
        document: The campaign, as `status --json` has it.
        run: The command that runs its search again under another name.
        attempt: The command that runs the champion's program once, but for `--params`.
    """
    found = (_longer_budget(environment, history, run), _longer_search(history, document, run))
    return (*filter(None, found), *_points(environment, history, attempt))


def _longer_budget(environment: Environment, history: History, run: str) -> Idea | None:
    champion = best(history)
    curve = [value for value in (champion.runs[-1].curve if champion and champion.runs else ()) if value is not None]
    if champion is None or len(curve) < 15:
        return None
    sign = 1 if champion.score.higher_is_better else -1
    whole, last = sign * (curve[-1] - curve[0]), sign * (curve[-1] - curve[-5])
    if whole <= 0 or last <= RISING * whole:
        return None
    seconds = 2 * environment.budget_seconds
    steps = f" --set budget_steps={2 * environment.budget_steps:g}" if environment.budget_steps else ""
    return Idea(
        f"A longer budget: {seconds:g} s instead of {environment.budget_seconds:g} s.",
        f"Trial {champion.number} was still improving when its budget was used up: the last fifth of it brought "
        f"{last / whole:.0%} of its whole rise.",
        f"{run} --set budget_seconds={seconds:g}{steps}",
    )


def _longer_search(history: History, document: Mapping[str, Any], run: str) -> Idea | None:
    """Twice the limit that ended the search, if one did."""
    champion, spec, hours = best(history), document["spec"], document["spent"]["seconds"] / 3600
    if champion is None or champion.number == 0 or len(trials_before(history, champion)) < LATE * len(history):
        return None
    why = "The search was still finding better when it ended: its champion is "
    why += f"trial {champion.number} of {len(history) - 1}."
    if spec["trials"] - math.ceil(budgets_used(history)) < 1:  # `--trials` counts in whole budgets
        words = f"More trials: {2 * spec['trials']} instead of {spec['trials']}."
        longer = max(spec["hours"], round(2 * hours, 1))
        return Idea(words, why, f"{run} --trials {2 * spec['trials']} --hours {longer:g}")
    if (document["reason"] or "").startswith("no time"):
        had = round(hours, 1) if spec.get("until") else spec["hours"]  # whichever of the two ended it
        return Idea(f"More time: {2 * had:g} hours instead of {had:g}.", why, f"{run} --hours {2 * had:g}")
    return None


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
