"""Trial -> the ledger and MLflow. Idempotent: whatever a kill left half done, the next call completes.

The ledger comes first and is what counts. Tracking is an outbox: a trial that MLflow has not taken waits in it, and
is sent after the next trial, or when the campaign is resumed. A tracking server that is down stops nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from pathlib import Path
from typing import Literal

from prefect import task
from prefect.cache_policies import NO_CACHE

import environments
from environments import Environment, judge_name
from tasks import lineage, workspace
from tasks.checkpoint import At
from tasks.ledger import Ledger, home
from tasks.tracking import CampaignRecord, Rejected, TrialFiles, Unreachable, locate
from tasks.trial import History, Trial, best

COLUMNS = (
    "trial attempt commit score se n verdict level seconds steps peak_memory_gb cost_usd proposer budget machine judge "
    "comparable description params"
).split()


@task(name="record", task_run_name="record-{at.number}", cache_policy=NO_CACHE, persist_result=False)
def record(at: At, ledger: Ledger, outbox: Outbox, history: History, trial: Trial) -> Trial:
    """Settle a decided trial and send what waits to MLflow; the trial as the ledger has it."""
    settled = settle(ledger, history, trial)
    outbox.add(settled)
    outbox.drain()
    return settled


def settle(ledger: Ledger, history: History, trial: Trial) -> Trial:
    """Write a decided trial into the ledger, unless it is there already; the trial as the ledger has it."""
    place = ledger.place(trial.number)
    if place.trial.is_file():
        return workspace.TRIAL.validate_json(place.trial.read_bytes())
    repository = ledger.path / "lineage.git"
    commit = lineage.commit(repository, place, trial, program_files(ledger))
    if (champion := best((*history, trial))) is not None:
        lineage.crown(repository, champion.number)
    workspace.write(place.diff, lineage.patch(repository, trial.number))
    workspace.write(place.trial, workspace.TRIAL.dump_json(trial, indent=2).decode() + "\n")
    with (ledger.path / "results.tsv").open("a") as file:
        file.write(row(ledger.environment, trial, commit))
    ledger.event("settled", trial=trial.number, verdict=trial.verdict.kind, score=trial.score.value)
    return trial


def reconcile(ledger: Ledger, history: History) -> None:
    """Rewrite results.tsv from the trials: a kill may have fallen between a trial and its line."""
    commits = lineage.commits(ledger.path / "lineage.git")
    rows = (row(ledger.environment, trial, commits.get(trial.number, "")) for trial in history)
    workspace.write(ledger.path / "results.tsv", "\t".join(COLUMNS) + "\n" + "".join(rows))


def program_files(ledger: Ledger) -> tuple[str, ...]:
    """The files that make up a trial's program: the baseline's, and those that an edit may add."""
    own = [path.relative_to(ledger.program).as_posix() for path in environments.files(ledger.program)]
    return tuple(dict.fromkeys([*own, *ledger.environment.editable]))


def row(environment: Environment, trial: Trial, commit: str) -> str:
    """A trial as a line of results.tsv; what is not known is empty, never 0."""
    run, score = trial.runs[-1], trial.score
    varying = {name: value for name, value in trial.proposal.params.items() if name in environment.space}
    values: dict[str, object] = {
        "trial": trial.number,
        "attempt": trial.attempt,
        "commit": commit[:12],
        "score": score.value,
        "se": score.se,
        "n": score.n or None,
        "verdict": trial.verdict.kind,
        "level": trial.verdict.level,
        "seconds": run.seconds,
        "steps": run.steps,
        "peak_memory_gb": run.peak_memory and round(run.peak_memory / 2**30, 3),
        "cost_usd": trial.proposal.cost,
        "proposer": trial.proposal.proposer,
        "budget": f"{environment.budget_seconds:g}s" + (f"/{environment.budget_steps}" if environment.budget_steps else ""),
        "machine": machine(),
        "judge": judge_name(environment.judge),
        "comparable": "yes",
        "description": trial.proposal.rationale,
        "params": json.dumps(varying, sort_keys=True),
    }
    return "\t".join(_cell(values[column]) for column in COLUMNS) + "\n"


def machine() -> str:
    """This machine in a word: scores under a time budget compare on the same one only."""
    return f"{platform.system()}-{platform.machine()}-{os.cpu_count()}cpu".lower()


def _cell(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())


class Outbox:
    """The trials that MLflow has not taken yet."""

    def __init__(self, ledger: Ledger, tracking: str | None, flow_run_id: str | None, history: History) -> None:
        self.ledger = ledger
        self.tracker = locate(tracking, home())
        self.waiting = [trial for trial in history if not is_tracked(ledger, trial)]
        self._campaign = campaign_record(ledger, flow_run_id)
        self._down = False
        self._history = list(history)

    def add(self, trial: Trial) -> None:
        if trial.settle >= len(self._history):
            self._history.append(trial)
        if not is_tracked(self.ledger, trial) and trial not in self.waiting:
            self.waiting.append(trial)

    def drain(self) -> None:
        """Send what waits, oldest first, until all is sent or the server is found down.

        A record that MLflow rejects stays, without holding up the others; an outage is noted once.
        """
        try:
            if self.waiting:
                self.tracker.open_campaign(self._campaign)
            for trial in list(self.waiting):
                try:
                    self._send(trial)
                    self.waiting.remove(trial)
                except Rejected as rejected:
                    self.ledger.event("tracking", trial=trial.number, error=str(rejected), waiting=len(self.waiting))
            self._down = False
        except Unreachable as down:
            if not self._down:
                self.ledger.event("tracking", error=str(down), waiting=len(self.waiting))
            self._down = True

    def close(self, status: Literal["finished", "failed", "stopped"]) -> None:
        """End the campaign's own run in MLflow; a server that is down is noted, the ledger says the same."""
        self.drain()
        if self._down:
            return
        try:
            self.tracker.close_campaign(self._campaign, status)
        except Unreachable as down:
            self.ledger.event("tracking", error=str(down), waiting=len(self.waiting))

    def urls(self) -> dict[str, str]:
        return self.tracker.urls(self._campaign)

    def _send(self, trial: Trial) -> None:
        place = self.ledger.place(trial.number)
        commit = lineage.commits(self.ledger.path / "lineage.git").get(trial.number)
        run_id = self.tracker.log_trial(self._campaign, trial, TrialFiles(place.path, commit))
        champion = best(tuple(self._history[: trial.settle + 1]))
        if champion is not None and champion.score.value is not None:
            decided = trial.runs[-1].started + trial.wall_seconds
            self.tracker.log_champion(self._campaign, trial.number, champion.score.value, decided)
        workspace.write(_receipt(place.path), json.dumps({"run_id": run_id, "of": fingerprint(place.trial)}) + "\n")


def is_tracked(ledger: Ledger, trial: Trial) -> bool:
    """Whether MLflow has taken this trial as it is now."""
    place = ledger.place(trial.number)
    receipt = _receipt(place.path)
    return receipt.is_file() and json.loads(receipt.read_text())["of"] == fingerprint(place.trial)


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _receipt(path: Path) -> Path:
    return path / "tracked.json"


def campaign_record(ledger: Ledger, flow_run_id: str | None) -> CampaignRecord:
    """The campaign as MLflow knows it."""
    campaign, environment = ledger.campaign, ledger.environment
    return CampaignRecord(
        campaign=campaign.name,
        campaign_id=campaign.campaign_id,
        environment=environment.name,
        metric=environment.metric,
        higher_is_better=environment.higher_is_better,
        flow_run_id=flow_run_id,
        created=campaign.created,
        spec={
            "environment": campaign.source,
            "proposer": campaign.proposer,
            "seed": str(campaign.seed),
            "budget_seconds": f"{environment.budget_seconds:g}",
            "isolation": campaign.isolation,
        },
    )


