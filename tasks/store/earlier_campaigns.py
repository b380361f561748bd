"""Trials of earlier campaigns in the same environment, for proposers that learn from them.

They are copied into a new campaign as `learned.json`, so it can be resumed even when the earlier campaigns are gone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from environments import Environment
from environments.plugins import Refused
from environments.score import Score
from tasks.store.ledger import Ledger
from tasks.trial import History, Trial, baseline

LEARNED = "learned.json"
MOST = 500
"""Most trials to learn from one campaign, the newest ones; a proposer processes all of them at each turn."""
HISTORY = TypeAdapter(History)


def learned_from(names: Iterable[str], environment: Environment) -> History:
    """The trials of earlier campaigns, the oldest first, each with its baseline first. Refused if one says nothing."""
    ledgers = sorted(map(Ledger.open, dict.fromkeys(names)), key=lambda ledger: ledger.campaign.created)
    return tuple(lesson for ledger in ledgers for lesson in _lessons(ledger, environment))


def lessons_json(history: History) -> str:
    return HISTORY.dump_json(history).decode() + "\n"


def lessons(folder: Path) -> History:
    """The trials to learn from, by campaign folder; empty without any."""
    path = folder / LEARNED
    return HISTORY.validate_json(path.read_bytes()) if path.is_file() else ()


def _lessons(ledger: Ledger, environment: Environment) -> Iterator[Trial]:
    name, history = ledger.campaign.name, ledger.history()
    old, new = (
        f"{each.name}, which is to {each.direction} {each.metric} by {', '.join(sorted(each.space))}"
        for each in (ledger.environment, environment)
    )
    if old != new:
        raise Refused(f"campaign {name!r}: its environment is {old}, this one {new}: leave it out")
    if not history:
        raise Refused(f"campaign {name!r} has no finished trial to learn from: leave it out")
    first = baseline(history) or history[0]
    for trial in (first, *[other for other in history if other is not first][-MOST:]):
        # Without what only its own campaign needs: curves, results of single units, reruns.
        runs = tuple(replace(run, curve=()) for run in trial.runs)
        yield replace(trial, runs=runs, score=_summary(trial.score), reruns=())


def _summary(score: Score) -> Score:
    return replace(score, units=(), runs=tuple(map(_summary, score.runs)))
