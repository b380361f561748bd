"""Trials of earlier campaigns in the same environment, for proposers that learn from them.

They are copied into a new campaign as `learned.json`, so it can be resumed even when the earlier campaigns are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from environments import Environment
from environments.plugins import Refused
from environments.score import Score
from tasks.store.ledger import Ledger
from tasks.trial import History, Trial, baseline, in_full

LEARNED = "learned.json"
MOST = 500
"""Most trials to learn from, the newest ones; a proposer processes all of them at each turn."""
ERROR_CHARACTERS = 2_000
HISTORY = TypeAdapter(History)


def learned_from(names: Iterable[str], environment: Environment) -> History:
    """The newest full trials of earlier campaigns, the oldest campaign first, reduced to what can be learned from.

    Each campaign's part begins with its baseline. Refused: no such campaign, another environment, or no finished trial.
    """
    room, found = MOST, History()
    ledgers = [Ledger.open(name) for name in dict.fromkeys(names)]
    for ledger in sorted(ledgers, key=lambda one: one.campaign.created, reverse=True):
        _check(ledger, environment)
        history = in_full(ledger.history())
        if not history:
            raise Refused(f"campaign {ledger.campaign.name!r} has no finished trial to learn from: leave it out")
        part = _newest(history, room)
        room -= len(part)
        found = (*map(_lesson, part), *found)
    return found


def _newest(history: History, most: int) -> History:
    """The baseline, and of the others the newest."""
    first, others = baseline(history), tuple(trial for trial in history if trial.number)
    if not most or first is None:
        return others[-most:] if most else ()
    return (first, *(others[1 - most :] if most > 1 else ()))


def lessons_json(history: History) -> str:
    return HISTORY.dump_json(history).decode() + "\n"


def lessons(folder: Path) -> History:
    """The trials to learn from, by campaign folder; empty without any, Refused if the file is broken."""
    path = folder / LEARNED
    try:
        return HISTORY.validate_json(path.read_bytes()) if path.is_file() else ()
    except ValidationError as broken:
        raise Refused(f"{path}: not the trials of a campaign: {broken.errors()[0]['msg']}") from broken


def _check(ledger: Ledger, environment: Environment) -> None:
    name, known = ledger.campaign.name, ledger.campaign.environment
    if known != environment.name:
        raise Refused(
            f"campaign {name!r} ran environment {known!r}, and there is nothing to learn from it for "
            f"{environment.name!r}: name campaigns of that environment"
        )
    theirs = ledger.environment
    if other := sorted(theirs.space.keys() ^ environment.space.keys()):
        raise Refused(
            f"campaign {name!r} searched other parameters than environment {environment.name!r} has now "
            f"(only one of them has {', '.join(other)}): leave it out"
        )
    if (theirs.metric, theirs.direction) != (environment.metric, environment.direction):
        raise Refused(
            f"campaign {name!r} was to {theirs.direction} {theirs.metric}, and environment {environment.name!r} "
            f"is to {environment.direction} {environment.metric}: leave it out"
        )


def _lesson(trial: Trial) -> Trial:
    """A trial without what only its own campaign needs: curves, results of single units, reruns."""
    runs = [replace(run, curve=(), error=run.error and run.error[-ERROR_CHARACTERS:]) for run in trial.runs]
    return replace(trial, runs=tuple(runs), score=_summary(trial.score), reruns=())


def _summary(score: Score) -> Score:
    return replace(score, units=(), runs=tuple(map(_summary, score.runs)))
