"""The outbox: trials and certificates of the ledger that are not in MLflow yet.

The ledger counts. What MLflow has not taken is sent after the next trial, at the end, or on resume; a tracking server
that is down stops nothing. What waits is derived from receipts beside the trials and certificates (receipts.py), so
a kill loses and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from environments.space import Choice
from tasks.certifying.certificate import Certificate, level
from tasks.describe import SELF_REPORTED
from tasks.store import lineage
from tasks.store.ledger import CERTIFICATE, Ledger, machine
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.home import home
from tasks.system.redact import without_passwords
from tasks.tracking import datasets, receipts
from tasks.tracking.certificates import own
from tasks.tracking.client import locate
from tasks.tracking.connection import RecordRejected, Unreachable
from tasks.tracking.interface import Ending
from tasks.tracking.logged_model import Champion
from tasks.tracking.receipts import RECEIPT, is_left_open, is_traced, is_tracked, is_unclosed, unsent, wants_traces
from tasks.tracking.trial_run import CampaignRecord, TrialFiles
from tasks.trial import History, Trial

STATED = ("proposer", "rule", "cancel", "replicates", "looks", "seed", "isolation")
"""Settings of a campaign that are parameters of its run, by the same name."""
PATIENCE_SECONDS = 1.0
REST = 9.0
"""Seconds of rest for a server that did not answer, per second spent waiting for it."""


class Outbox:
    def __init__(self, ledger: Ledger, tracking: str | None, flow_run_id: str | None, history: History) -> None:
        self.ledger = ledger
        self.tracker = locate(tracking, home())
        self.waiting = [trial for trial in history if not is_tracked(ledger, trial)]
        self._campaign = campaign_record(ledger, flow_run_id)
        self._down = self._opened = False
        self._rest_until = 0.0
        self._rejected: set[str] = set()
        self.problem = ""
        """MLflow's latest error; empty if everything was sent."""
        self._history = list(history)
        self._traces = wants_traces(ledger)
        self._untraced = [trial for trial in history if self._traces and not is_traced(ledger, trial)]

    def add(self, trial: Trial) -> None:
        self._history = [*(other for other in self._history if other.number != trial.number), trial]
        if not is_tracked(self.ledger, trial) and trial not in self.waiting:
            self.waiting.append(trial)
        if self._traces and not is_traced(self.ledger, trial) and trial not in self._untraced:
            self._untraced.append(trial)

    def drain(self) -> None:
        """Send what waits, trials first and traces last, until all is sent or the server is found down.

        A rejected record does not block others. It, and an outage, is recorded as an event once.
        """
        began = clock()
        if began < self._rest_until:
            return
        self.problem = ""
        try:
            self._drain_records()
            self._down = False
        except Unreachable as down:
            if not self._down:
                self._note(down)
            self._down = True
            self.problem = without_passwords(str(down))
            self._rest(began)
        else:
            self._drain_traces(began)

    def _drain_records(self) -> None:
        certificates, looks = self.ledger.certificates(), unsent(self.ledger)
        if (self.waiting or looks) and not self._opened:
            self.tracker.open_campaign(self._campaign)
            self.ledger.event("tracked", urls=self.tracker.urls(self._campaign), store=self.tracker.store)
            self._opened = True
        for trial in list(self.waiting):
            interrupt.check()  # a slow server may have many to take, and the next process finds the rest
            try:
                self._send(trial, certificates)
                self.waiting.remove(trial)
            except RecordRejected as rejected:
                self._refused(rejected, trial=trial.number)
        for path in looks:
            interrupt.check()
            try:
                self._send_certificate(path, certificates)
            except RecordRejected as rejected:
                self._refused(rejected, certificate=path.stem)

    def _rest(self, began: float) -> None:
        """Let a server rest that took long and did not answer; one that refuses at once costs nothing."""
        if (took := clock() - began) > PATIENCE_SECONDS:
            self._rest_until = clock() + REST * took

    def _drain_traces(self, began: float) -> None:
        """Send the requests to language models of recorded trials. A failure does not affect the rest."""
        for trial in [one for one in self._untraced if one not in self.waiting]:
            interrupt.check()
            place = self.ledger.place_of(trial)
            try:
                run_id = self.tracker.log_traces(self._campaign, trial, TrialFiles(place.path))
            except Unreachable as problem:
                self._refused(problem, traces=trial.number)
                if not isinstance(problem, RecordRejected):
                    self._rest(began)
                    return
            else:
                receipts.sign(place.path / "traced.json", place.trial, run_id)
                self._untraced.remove(trial)

    def close(self, status: Ending) -> None:
        """End the campaign's run in MLflow; if the server is down, the end waits like a trial."""
        self._rest_until = 0.0
        self.drain()
        history, certificates = tuple(self._history), self.ledger.certificates()
        try:
            if self._down:
                raise Unreachable(self.problem)
            self.tracker.close_campaign(self._campaign, status, history, certificates, self.ledger.path)
        except Unreachable as down:
            self.problem = without_passwords(str(down))
            if not is_unclosed(self.ledger):
                self._note(down, end=status)
        else:
            if is_unclosed(self.ledger) or is_left_open(self.ledger):
                self.ledger.event("closed", state=status)

    def _refused(self, rejected: Unreachable, **which: int | str) -> None:
        self.problem = without_passwords(str(rejected))
        if str(which) not in self._rejected:
            self._note(rejected, **which)
        self._rejected.add(str(which))

    def _note(self, problem: Unreachable, **which: int | str) -> None:
        trials = {trial.number for trial in (*self.waiting, *self._untraced)}
        left = len(trials) + len(unsent(self.ledger)) + ("end" in which)
        self.ledger.event("tracking", **which, error=without_passwords(str(problem)), waiting=left)

    def _send(self, trial: Trial, certificates: Sequence[Certificate]) -> None:
        run_id = self._log(trial, certificates)
        self.tracker.log_progress(self._campaign, trial, tuple(self._history), certificates)
        place = self.ledger.place_of(trial)
        receipts.sign(place.path / "tracked.json", place.trial, run_id)

    def _log(self, trial: Trial, certificates: Sequence[Certificate]) -> str:
        """Record a trial at its present level; returns its run."""
        believed = level(trial, own(self._campaign, certificates))
        trial = replace(trial, verdict=replace(trial.verdict, level=believed))
        commit = lineage.commits(self.ledger.path / "lineage.git", trial.number).get(trial.number)
        files = TrialFiles(self.ledger.place_of(trial).path, commit)
        return self.tracker.log_trial(self._campaign, trial, files)

    def _send_certificate(self, path: Path, certificates: Sequence[Certificate]) -> None:
        """Record a certificate; if it passed, also the champion's new level and registered model."""
        certificate = CERTIFICATE.validate_json(path.read_bytes())
        if certificate.champion not in {trial.number for trial in self._history}:
            return  # it was made while earlier trials were still being sent: it follows them
        self.tracker.log_certificates(self._campaign, tuple(self._history), certificates)
        run_id = ""
        if certificate.passed and not certificate.elsewhere:
            champion = next(trial for trial in self._history if trial.number == certificate.champion)
            run_id = self._log(champion, certificates)
            files = Champion(self.ledger.environment, self.ledger.place_of(champion), champion)
            if model := self.tracker.register(self._campaign, certificate, files, run_id):
                self.ledger.event("registered", trial=champion.number, model=without_passwords(model))
        receipts.sign(path.with_suffix(RECEIPT), path, run_id)


def campaign_record(ledger: Ledger, flow_run_id: str | None) -> CampaignRecord:
    campaign, environment = ledger.campaign, ledger.environment
    steps = {"budget_steps": f"{environment.budget_steps} ({SELF_REPORTED})"} if environment.budget_steps else {}
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
            **{name: str(getattr(campaign, name)) for name in STATED},
            "budget_seconds": f"{environment.budget_seconds:g}",
            "machine": machine(),
            "cores": str(environment.cores),
            **({"fidelity": f"{ledger.fidelity.share:g}"} if ledger.fidelity.share < 1 else {}),
            **steps,
            **{f"set.{key}": str(value) for key, value in campaign.overrides.items()},
            **{f"rule.{key}": str(value) for key, value in campaign.rule_options.items()},
            **{f"cancel.{key}": str(value) for key, value in campaign.cancel_options.items()},
        },
        varies=tuple(environment.space),
        logarithmic=tuple(name for name, at in environment.space.items() if not isinstance(at, Choice) and at.log),
        commit=campaign.commit,
        datasets=datasets.used(ledger),
    )
