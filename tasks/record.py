"""Record: a decided trial goes to the ledger, and from there to MLflow. Idempotent.

It is no task of Prefect: it takes milliseconds, what it writes is its result, and `decide` has told the verdict. A task
would be three events to the server for every trial, and a row that repeats another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import environments
from environments import Environment, judge_name
from tasks.certifying.certificate import level
from tasks.deciding.comparable import is_elsewhere
from tasks.store import lineage, workspace
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.tracking.sender import Sender
from tasks.trial import History, Level, Trial, best, is_from, machine_of

COLUMNS = (
    "trial", "attempt", "commit", "score", "se", "n", "verdict", "level", "seconds", "steps", "peak_memory_gb",
    "cost_usd", "proposer", "budget", "machine", "judge", "comparable", "description", "params",
)  # fmt: skip


def record(ledger: Ledger, sender: Sender, history: History, trial: Trial) -> Trial:
    """Store a decided trial, and hand it to the sender; returns the trial as stored."""
    settled = settle(ledger, history, trial)
    sender.send(settled)
    return settled


def settle(ledger: Ledger, history: History, trial: Trial) -> Trial:
    """Write a decided trial into the ledger, unless it is there; returns the trial as stored."""
    place = ledger.place(trial.number)
    if known := workspace.finished(place):
        return known
    repository = ledger.path / "lineage.git"
    commit = lineage.commit(repository, place, trial, program_files(ledger))
    if trial.verdict.kind == "keep" and (champion := best((*history, trial))):
        lineage.crown(repository, champion.number)
    write_atomic(place.diff, lineage.patch(repository, trial.number))
    write_atomic(place.trial, _text(trial), lasting=True)
    before, now = machine_of(history), machine_of((*history, trial))
    if is_from(before, now):
        with (ledger.path / "results.tsv").open("a") as file:
            file.write(row(ledger.environment, trial, commit, trial.verdict.level, now))
    else:
        rewrite(ledger)
        left = sum(is_elsewhere(one, now) for one in history)
        ledger.event("machine", trial=trial.number, now=now, before=before, not_comparable=left)
    ledger.event("settled", trial=trial.number, verdict=trial.verdict.kind, score=trial.score.value)
    return trial


def resettle(ledger: Ledger, before: History, now: History) -> None:
    """Store recomputed verdicts and mark the changed ones. A call completes what a kill cut off.

    The record of the new attempt is written last. Until then the attempt is pending (tasks/store/attempts.py), and
    the next process that takes the campaign recomputes everything.
    """
    repository, old = ledger.path / "lineage.git", {trial.number: trial for trial in before}
    again = [trial for trial in now if trial.attempt != old[trial.number].attempt]
    for trial in now:
        if trial not in again and trial != old[trial.number]:
            write_atomic(ledger.place_of(trial).trial, _text(trial))
    for trial in again:
        lineage.keep(repository, trial.number, old[trial.number].attempt)
        place = ledger.place_of(trial)
        lineage.commit(repository, place, trial, program_files(ledger))
        write_atomic(place.diff, lineage.patch(repository, trial.number))
    if champion := best(now):
        lineage.crown(repository, champion.number)
    _tell(ledger, now, again)
    for trial in again:
        write_atomic(ledger.place_of(trial).trial, _text(trial))
    rewrite(ledger)


def _tell(ledger: Ledger, now: History, again: Sequence[Trial]) -> None:
    told = [{**event, "time": 0} for event in ledger.events()]

    def once(kind: str, **facts: object) -> None:
        if {"time": 0, "event": kind, **facts} not in told:
            ledger.event(kind, **facts)

    for trial in again:
        verdict, score = trial.verdict.kind, trial.score.value
        once("settled", trial=trial.number, verdict=verdict, score=score, attempt=trial.attempt)
    for trial in now:
        kinds = [*(was.kind for was in trial.was), trial.verdict.kind]
        for was, kind in zip(trial.was, kinds[1:], strict=True):
            facts = {"rerun": was.rerun, "attempt": was.attempt}
            once("verdict", trial=trial.number, before=was.kind, now=kind, **facts)


def _text(trial: Trial) -> str:
    return workspace.TRIAL.dump_json(trial, indent=2).decode() + "\n"


def reconcile(ledger: Ledger) -> History:
    """The finished trials. Rewrites results.tsv, since a kill may fall between a trial and its line."""
    lineage.unlock(ledger.path / "lineage.git")
    return rewrite(ledger)


def rewrite(ledger: Ledger) -> History:
    """Rewrite results.tsv from the finished trials and certificates; returns the trials."""
    history, commits = ledger.history(), lineage.commits(ledger.path / "lineage.git")
    environment = ledger.environment
    own = [one for one in ledger.certificates() if not one.elsewhere]
    commit, here = commits.get, machine_of(history)
    rows = (row(environment, trial, commit(trial.number, ""), level(trial, own), here) for trial in history)
    write_atomic(ledger.path / "results.tsv", "\t".join(COLUMNS) + "\n" + "".join(rows))
    return history


def program_files(ledger: Ledger) -> tuple[str, ...]:
    own = [path.relative_to(ledger.program).as_posix() for path in environments.files(ledger.program)]
    return tuple(dict.fromkeys([*own, *ledger.environment.editable]))


def row(environment: Environment, trial: Trial, commit: str, believed: Level | None, here: str) -> str:
    """A trial as a line of results.tsv; unknown values are empty. `here`: the machine whose scores compare."""
    score, peak = trial.score, max((run.peak_memory or 0 for run in trial.runs), default=0)
    budget = environment.at(trial.proposal.share)
    steps = f"/{budget.budget_steps}" if budget.budget_steps else ""
    varying = {name: value for name, value in trial.proposal.params.items() if name in environment.space}
    values: dict[str, object] = {
        "trial": trial.number,
        "attempt": trial.attempt,
        "commit": commit[:12],
        "score": score.value,
        "se": score.se,
        "n": score.n or None,
        "verdict": trial.verdict.kind,
        "level": believed,
        "seconds": math.fsum(run.seconds for run in trial.runs),
        "steps": trial.runs[-1].steps,
        "peak_memory_gb": round(peak / 2**30, 3) if peak else None,
        "cost_usd": trial.cost,
        "proposer": trial.proposal.proposer,
        "budget": f"{budget.budget_seconds:g}s{steps}",
        "machine": trial.runs[-1].machine,
        "judge": judge_name(environment.judge),
        "comparable": "no" if trial.proposal.is_short or is_elsewhere(trial, here) else "yes",
        "description": trial.proposal.rationale,
        "params": json.dumps(varying, sort_keys=True),
    }
    cells = ("" if values[name] is None else " ".join(str(values[name]).split()) for name in COLUMNS)
    return "\t".join(cells) + "\n"
