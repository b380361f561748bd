"""`sync`: make MLflow show what a campaign's folder holds.

It may be called at any time again. A run is found by its tag `nightshift.key` (campaign, trial, attempt). Its tag
`nightshift.digest` is set last, so a run that a kill left half done, or whose trial has changed since, is completed by
the next call. What is sent twice is the same: points have times that follow from the trial.

What came of the last call is in `mlflow.json`, for people and for `prune`; `sync` itself asks MLflow.
"""

from __future__ import annotations

import shlex
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from filelock import FileLock, Timeout
from pydantic import BaseModel

from environments.plugins import Refused
from tasks.stats.certificate import level
from tasks.store import campaign_lock, safe_read
from tasks.store.ledger import CERTIFICATE, Ledger
from tasks.store.workspace import TRIAL
from tasks.system.files import write_atomic
from tasks.system.redact import without_passwords
from tasks.task_key import digest_of
from tasks.tracking import campaign_run, champion_model, traces, trial_run, wandb_mirror
from tasks.tracking.connection import DATABASE, Store
from tasks.tracking.trial_run import trial_key
from tasks.tracking.values import MetricPoint, metric_key, milliseconds, parameters
from tasks.trial import History, Trial
from tasks.verdict_styles import VERDICTS

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STATUS = {
    "running": "RUNNING", "finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "interrupted": "KILLED",
}  # fmt: skip
"""MLflow's words for the states of a campaign."""
WORKFLOW = "workflowType=machine_learning"
"""In each link, or the page opens in its mode for language models."""
KEY, DIGEST = "nightshift.key", "nightshift.digest"
FILE, LOCK = "mlflow.json", "mlflow.lock"
REGISTRY_LOCK = f"{DATABASE}.registry.lock"
"""In a home: of what its campaigns share, the experiment and the model of an environment."""
LOCK_SECONDS = 300.0
PROBLEM_CHARACTERS = 500
LATE_SECONDS = 20.0
"""After two such waits for files, no more are tried in a call."""


class Synced(BaseModel):
    """What the last call of `sync` left."""

    store: str = ""
    """The address, without a login; the name of the home's own database."""
    urls: dict[str, str] = {}
    """The `url` of the trials; without a server the `path` on that which `command` starts."""
    runs: dict[str, str] = {}
    """The runs that are complete, by `trial_key`; the campaign's own by its id, once it has ended."""
    problem: str = ""
    """MLflow's first error, and what W&B lacks; empty if both have everything."""


def sync(ledger: Ledger, store: Store | None, state: str) -> Synced:
    """Record what is missing. What a server does not take is left to the next call, with the reason.

    Args:
        store: None: MLflow is off.
        state: The campaign's: its own run is ended unless it is running.

    Raises:
        Refused: the campaign is of an earlier version, or one of its files is damaged.
    """
    ledger.check_version()
    file, now = ledger.path / FILE, Synced()
    try:
        lock = FileLock(ledger.path / LOCK).acquire(timeout=LOCK_SECONDS)
    except Timeout:
        return last(ledger).model_copy(update={"problem": "another process has not ended to record this campaign"})
    with lock:
        if store:
            now = last(ledger)
            if now.store != str(store):  # said before it is asked: it may never answer
                now = Synced(store=str(store))
                write_atomic(file, now.model_dump_json(indent=1))
            now.problem = ""
            try:
                with store.client() as client:
                    _Campaign(ledger, store, state, now, client).record()
            except Refused:
                raise
            except Exception as error:  # noqa: BLE001 (MLflow's stores are plug-ins, which may raise anything)
                now.problem = now.problem or _words(store, error)
            write_atomic(file, now.model_dump_json(indent=1))
        now.problem = "; ".join(filter(None, (now.problem, wandb_mirror.mirror(ledger))))
    return now


def last(ledger: Ledger) -> Synced:
    """What the last call left; empty before the first."""
    try:
        return Synced.model_validate_json((ledger.path / FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return Synced()


def waiting(ledger: Ledger, history: History) -> int:
    """How many records MLflow lacks as far as known: trials, and the campaign's own run. None with tracking off."""
    known = last(ledger)
    if not known.store:
        return 0
    missing = sum(trial_key(ledger, trial) not in known.runs for trial in history)
    return missing + (ledger.campaign.campaign_id not in known.runs and not campaign_lock.is_running(ledger))


class _Campaign:
    """One call of `sync`."""

    def __init__(self, ledger: Ledger, store: Store, state: str, now: Synced, client: MlflowClient) -> None:
        self.ledger, self.store, self.state, self.now, self.client = ledger, store, state, now, client
        self.trials, self.history = ledger.attempts_decided(), ledger.history()
        """Every decided attempt, and those that count."""
        self.certificates, self.own = ledger.certificates(), ledger.own_certificates()
        self.counting = {trial.number: trial.attempt for trial in self.history}
        spec = tomllib.loads((ledger.path / "spec.toml").read_text())
        self.traces = spec.get("advanced", {}).get("traces", False)
        self.refusals = 0
        """Trials in a row whose files were refused late, in this call."""

    def record(self) -> None:
        from mlflow.exceptions import MlflowException

        self.experiment = _experiment(self.client, self.store, self.ledger.environment.name)
        self.now.urls = _links(self.ledger, self.store, self.experiment)
        self.runs, self.now.runs = self._find(), {}
        self.parent = self._own_run()
        digests = [self._digest(trial) for trial in self.trials]
        records = [partial(self._record_trial, *pair) for pair in zip(self.trials, digests, strict=True)]
        for record in (*records, partial(self._record_campaign, digests)):
            try:
                record()
            except Exception as error:  # it holds up no other, unless the server is down
                self.now.problem = self.now.problem or _words(self.store, error)
                if isinstance(error, MlflowException) and error.get_http_status_code() >= 500:  # type: ignore[no-untyped-call]
                    raise
        if self.state != "running" and not self.now.problem:
            self.now.runs[self.ledger.campaign.campaign_id] = self.parent.info.run_id

    def _find(self) -> dict[str, Run]:
        """MLflow's runs by key, deleted ones among them."""
        from mlflow.entities import ViewType

        only = f"tags.`{KEY}` LIKE '{self.ledger.campaign.campaign_id}%'"
        most = 50_000  # that MLflow returns at once
        runs = self.client.search_runs([self.experiment], only, ViewType.ALL, most, ["start_time DESC"])
        return {run.data.tags[KEY]: run for run in runs}

    def _run(self, key: str, name: str, start: int, tags: Mapping[str, str]) -> Run:
        """The run of a key, created if missing."""
        if key not in self.runs:
            self.runs[key] = self.client.create_run(self.experiment, start, {KEY: key, **tags}, name)
        return self.runs[key]

    # The runs of trials

    def _digest(self, trial: Trial) -> str:
        asked = len(traces.requests(self.ledger.place_of(trial).path)) if self.traces else 0
        counts = self.counting[trial.number]
        return digest_of(TRIAL.dump_json(trial).decode(), level(trial, self.own) or "", str(counts), str(asked))

    def _record_trial(self, trial: Trial, digest: str) -> None:
        """Complete the run of a trial, created if missing. One that a person deleted stays so."""
        start, _ = trial_run.trial_times(self.ledger, trial)
        tags = {"kind": "trial", "mlflow.parentRunId": self.parent.info.run_id}
        run = self._run(trial_key(self.ledger, trial), trial_run.trial_name(self.ledger, trial), start, tags)
        run_id: str = run.info.run_id
        if run.info.lifecycle_stage != "deleted" and run.data.tags.get(DIGEST) != digest:
            self._complete(trial, run_id, is_sent=run.data.tags.get("checkpoint", "").startswith("out/"))
            self.client.set_tag(run_id, DIGEST, digest)
        self.now.runs[trial_key(self.ledger, trial)] = run_id

    def _complete(self, trial: Trial, run_id: str, is_sent: bool) -> None:
        """Log everything about a trial in its run, a keep's checkpoint once, and the best score in the campaign's."""
        ledger, client, newest = self.ledger, self.client, self.counting[trial.number]
        place, (_, end) = ledger.place_of(trial), trial_run.trial_times(ledger, trial)
        trial = replace(trial, verdict=replace(trial.verdict, level=level(trial, self.own)))
        superseded = f"attempt {newest}" if trial.attempt != newest else ""
        tags = {**trial_run.trial_tags(ledger, trial), "superseded": superseded}
        self._log(run_id, trial_run.trial_points(ledger, trial), parameters(trial.proposal.params), tags)
        client.log_inputs(run_id, campaign_run.datasets(ledger))
        if trial.attempt == newest:
            self._log(self.parent.info.run_id, campaign_run.best_so_far(ledger, self.history, trial), {}, {})
        client.set_terminated(run_id, VERDICTS[trial.verdict.kind].run_status, end_time=end)
        if self.refusals > 1:  # each may take a minute
            raise OSError("files are not taken")
        with safe_read.parcel(place.path) as parcel:
            safe_read.pack_trial(place, parcel)
            is_due = trial.verdict.kind == "keep" and not is_sent
            uploaded = safe_read.pack_folder(place.out, parcel) if is_due else ""
            began = time.monotonic()
            try:
                client.log_artifacts(run_id, str(parcel))
            except Exception as error:  # the storage of files may fail alone
                self.refusals += time.monotonic() - began > LATE_SECONDS
                raise OSError(f"the files of trial {trial.number}: {error}") from error
        self.refusals = 0
        if uploaded:
            client.set_tag(run_id, "checkpoint", uploaded)
        if self.traces:
            traces.send(client, ledger, trial, self.experiment, run_id)

    # The campaign's own run

    def _own_run(self) -> Run:
        """The campaign's run, created if missing, and restored if somebody deleted it."""
        campaign = self.ledger.campaign
        run = self._run(campaign.campaign_id, campaign.name, milliseconds(campaign.created), {"kind": "campaign"})
        if run.info.lifecycle_stage == "deleted":
            self.client.restore_run(run.info.run_id)
        if self.state == "running" and run.info.status != STATUS["running"]:
            self.client.update_run(run.info.run_id, status=STATUS["running"])
        return run

    def _record_campaign(self, digests: Sequence[str]) -> None:
        """Log how the campaign stands, register its certified champion, and end its run if it has ended."""
        ledger, run_id = self.ledger, self.parent.info.run_id
        proofs = (CERTIFICATE.dump_json(one).decode() for one in self.certificates)
        digest = digest_of(*digests, *proofs, self.state)
        if self.parent.data.tags.get(DIGEST) == digest:
            return
        params = campaign_run.campaign_parameters(ledger)
        tags = campaign_run.campaign_tags(ledger, self.history, self.own, self.state)
        self._log(run_id, campaign_run.certificate_points(ledger, self.certificates), params, tags)
        self.client.log_inputs(run_id, campaign_run.datasets(ledger))
        if not self.now.problem:
            self._register()
        if self.state != "running":
            ends = [trial_run.trial_times(ledger, trial)[1] for trial in self.history]
            ends += [campaign_run.end_of(ledger, one) for one in self.certificates]
            end = max(ends, default=milliseconds(ledger.campaign.created))
            self.client.set_terminated(run_id, STATUS[self.state], end_time=end)
            with safe_read.parcel(ledger.path) as parcel:
                safe_read.pack_campaign(ledger.path, parcel)
                self.client.log_artifacts(run_id, str(parcel))
        if not self.now.problem:
            self.client.set_tag(run_id, DIGEST, digest)

    def _register(self) -> None:
        """Make the newest certified champion a version of its environment's model."""
        passed = [one for one in self.own if one.passed]
        for trial in [trial for trial in self.history if passed and trial.number == passed[-1].champion]:
            run = self.client.get_run(self.runs[trial_key(self.ledger, trial)].info.run_id)
            with FileLock(self.store.home / REGISTRY_LOCK, timeout=LOCK_SECONDS):
                model = champion_model.register(self.client, self.ledger, passed[-1], trial, run)
            self.client.set_tag(self.parent.info.run_id, "model", model)

    def _log(
        self, run_id: str, found: Sequence[MetricPoint], params: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        """Log it, without empty tags; MLflow makes batches of it, and cuts what is too long."""
        from mlflow.entities import Metric, Param, RunTag

        metrics, pairs = [Metric(*point) for point in found], [Param(*pair) for pair in params.items()]
        self.client.log_batch(run_id, metrics, pairs, [RunTag(*pair) for pair in tags.items() if pair[1]])


def _experiment(client: MlflowClient, store: Store, environment: str) -> str:
    """The id of an environment's experiment, created if missing."""
    name = f"nightshift/{environment}"
    with FileLock(store.home / REGISTRY_LOCK, timeout=LOCK_SECONDS):
        if known := client.get_experiment_by_name(name):
            if known.lifecycle_stage == "deleted":  # else it takes no run
                client.restore_experiment(known.experiment_id)
            return known.experiment_id
        # A server knows where files belong; a database would use the working directory, and takes no relative path.
        folder = store.home.absolute() / "artifacts" / metric_key(environment)
        return client.create_experiment(name, None if store.is_served else folder.as_uri())


def _words(store: Store, error: Exception) -> str:
    """An error in one line, without credentials."""
    first_line = str(error).partition("\n")[0][:PROBLEM_CHARACTERS] or type(error).__name__
    return without_passwords(f"MLflow at {store} does not take records: {first_line.replace(store.uri, str(store))}")


def _links(ledger: Ledger, store: Store, experiment: str) -> dict[str, str]:
    """Where a campaign's trials are, best first."""
    only = quote(f"tags.kind = 'trial' and tags.campaign = '{ledger.campaign.name}'")
    objective = quote(f"metrics.`{metric_key(ledger.environment.metric)}`")
    order = f"orderByKey={objective}&orderByAsc={str(not ledger.environment.higher_is_better).lower()}"
    page = f"#/experiments/{experiment}/runs?searchFilter={only}&{order}&{WORKFLOW}"
    if store.is_served:
        return {"url": f"{store}/{page}"}
    own = str(store) == DATABASE
    command = "nightshift up" if own else f"mlflow ui --backend-store-uri {shlex.quote(store.uri)} --port 5000"
    return {"command": command, "path": f"/{page}"}
