"""Record: a decided trial goes into the campaign's files, from where MLflow gets it. Idempotent.

It is no task of Prefect, since what it writes is its result, and `decide` has told the verdict.
"""

from __future__ import annotations

import json
import math

import environments
from environments import Environment, plugins
from tasks.stats.certificate import level
from tasks.store import lineage, workspace
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.trial import History, Level, Trial, best

COLUMNS = (
    "trial", "attempt", "commit", "score", "se", "n", "verdict", "level", "seconds", "steps", "peak_memory_gb",
    "cost_usd", "proposer", "budget", "machine", "judge", "description", "params",
)  # fmt: skip


def record(ledger: Ledger, history: History, trial: Trial) -> History:
    """Write a decided trial into the ledger; returns the history with it.

    trial.json comes last but for the table, which `reconcile` completes: a trial without one is decided again, by the
    results of its tasks, and recorded under the same commit.
    """
    repository, place = ledger.path / "lineage.git", ledger.place_of(trial)
    now = (*(one for one in history if one.number != trial.number), trial)
    _commit(ledger, now, trial)
    write_atomic(place.diff, lineage.patch(repository, trial.number))
    write_atomic(place.trial, workspace.TRIAL.dump_json(trial, indent=2) + b"\n", lasting=True)
    write_table(ledger, now)
    again = {"attempt": trial.attempt} if trial.attempt > 1 else {}
    ledger.event("settled", trial=trial.number, verdict=trial.verdict.kind, score=trial.score.value, **again)
    return now


def _commit(ledger: Ledger, history: History, trial: Trial) -> None:
    """Commit a trial of the history, and crown the champion if that may be another one by it."""
    repository = ledger.path / "lineage.git"
    own = [path.relative_to(ledger.program).as_posix() for path in environments.files(ledger.program)]
    files = tuple(dict.fromkeys([*own, *ledger.environment.editable]))
    lineage.commit(repository, ledger.place_of(trial), trial, files)
    if (champion := best(history)) and (trial.attempt > 1 or champion is trial):
        lineage.crown(repository, champion.number)


def reconcile(ledger: Ledger) -> History:
    """The finished trials. Rewrites results.tsv, since a kill may fall between a trial and its line, and makes the
    commits that a backup lacks which was taken meanwhile.
    """
    repository, history = ledger.path / "lineage.git", ledger.history()
    lineage.unlock(repository)
    known: set[int | None] = {None, *lineage.commits(repository)}
    for trial in history:
        is_lost = trial.number not in known and ledger.place_of(trial).workspace.is_dir()
        if is_lost and trial.proposal.parent in known:
            _commit(ledger, history, trial)
            known.add(trial.number)
    write_table(ledger, history)
    return history


def write_table(ledger: Ledger, history: History) -> None:
    """Write results.tsv: a line for each trial, at the level that the certificates give it."""
    commits, environment = lineage.commits(ledger.path / "lineage.git"), ledger.environment
    every = ledger.certificates()  # of which those elsewhere give no level
    rows = (row(environment, trial, commits.get(trial.number, ""), level(trial, every)) for trial in history)
    write_atomic(ledger.path / "results.tsv", "\t".join(COLUMNS) + "\n" + "".join(rows))


def row(environment: Environment, trial: Trial, commit: str, believed: Level | None) -> str:
    """A trial as a line of results.tsv, with a cell for each of COLUMNS; unknown values are empty."""
    score, peak = trial.score, max((run.peak_memory or 0 for run in trial.runs), default=0)
    steps = f"/{environment.budget_steps}" if environment.budget_steps else ""
    varying = {name: value for name, value in trial.proposal.params.items() if name in environment.space}
    values: dict[str, object] = {
        "trial": trial.number, "attempt": trial.attempt, "commit": commit[:12], "score": score.value, "se": score.se,
        "n": score.n or None, "verdict": trial.verdict.kind, "level": believed,
        "seconds": math.fsum(run.seconds for run in trial.runs), "steps": trial.runs[-1].steps,
        "peak_memory_gb": round(peak / 2**30, 3) if peak else None, "cost_usd": trial.cost,
        "proposer": trial.proposal.proposer, "budget": f"{environment.budget_seconds:g}s{steps}",
        "machine": trial.runs[-1].machine, "judge": plugins.name_of(environment.judge),
        "description": trial.proposal.rationale, "params": json.dumps(varying, sort_keys=True),
    }  # fmt: skip
    cells = ("" if values[name] is None else " ".join(str(values[name]).split()) for name in COLUMNS)
    return "\t".join(cells) + "\n"
