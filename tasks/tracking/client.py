"""MLflow as the place where campaigns are recorded: a run per campaign, with a child run per trial.

Logging is idempotent: runs are found by their `idempotency_key`, and every point has a time that follows from the
trial. If MLflow does not take a record, `Unreachable` is raised within seconds; the caller keeps what waits
(outbox.py). Only `MlflowClient` is used: the fluent interface keeps its current run per thread.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments.plugins import Refused
from tasks.certifying.certificate import Certificate
from tasks.store import safe_read
from tasks.store.workspace import TrialDir
from tasks.system.daemon import Daemon, running_at
from tasks.system.login import stored_login
from tasks.system.redact import without_passwords
from tasks.tracking import datasets, registry, schema
from tasks.tracking.campaign_run import decided, progress_points, state_tags, summary_points
from tasks.tracking.certificates import certificate_points, ended
from tasks.tracking.connection import Store, Unreachable, ensure_experiment, find_run
from tasks.tracking.interface import Ending, Tracker
from tasks.tracking.logged_model import Champion
from tasks.tracking.trial_run import (
    CampaignRecord,
    MetricPoint,
    TrialFiles,
    campaign_tags,
    contradicts,
    curves,
    log_tail,
    logarithms,
    metric_key,
    milliseconds,
    shown,
    system_points,
    trial_key,
    trial_run_name,
    trial_scalars,
    trial_tags,
    trial_times,
)
from tasks.tracking.views import nights_view, trials_view
from tasks.trial import History, Trial, best
from tasks.verdict_styles import VERDICTS

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run, RunTag

ENDED = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "databricks")
DRIVERS = {"postgresql": "psycopg2", "mysql": "MySQLdb", "mssql": "pyodbc"}
"""The modules that SQLAlchemy takes where the address names none."""
Certificates = Sequence[Certificate]

OWN = "mlflow.db"
"""A home's own database."""
MARK = "*"
"""Value of the tag `champion` on the run of the best trial."""
LIGHT = "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false"


class Mlflow(Tracker):
    """An MLflow server or database. Nothing is opened before the first use."""

    def __init__(self, uri: str, home: Path, secrets: Mapping[str, str] | None = None) -> None:
        self.uri = uri
        self._store = Store(uri, home, secrets or {})
        self.store = OWN if uri == _own(home) else str(self._store)
        self._experiments: dict[str, str] = {}
        self._parents: dict[str, str] = {}
        self._champions: dict[str, int] = {}
        """The trial of each campaign that carries the champion tag, as far as known."""
        self._metrics: dict[str, set[str]] = {}
        """Metrics with charts, by campaign."""

    def open_campaign(self, campaign: CampaignRecord) -> str:
        with self._reach() as client:
            parent = self._parent(client, campaign)
            if client.get_run(parent).info.status != "RUNNING":
                client.update_run(parent, status="RUNNING")
            self._show(client, campaign, ())
            return parent

    def log_trial(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        start, end = trial_times(campaign, trial)
        place = TrialDir(files.dir)
        shown_params = shown(trial.proposal.params) | logarithms(campaign, trial.proposal.params)
        points = [*trial_scalars(campaign, trial), *curves(place.progress, start), *system_points(trial)]
        with self._reach() as client:
            from mlflow.entities import Param

            run = self._child(client, campaign, trial, trial_tags(campaign, trial, files))
            run_id: str = run.info.run_id
            if trial.attempt > 1:  # the run of the previous attempt stays
                before = replace(trial, attempt=trial.attempt - 1)
                experiment = self._experiment(client, campaign.environment)
                if old := find_run(client, experiment, trial_key(campaign, before)):
                    client.set_tag(old.info.run_id, "superseded", f"attempt {trial.attempt}")
            # A request carries at most 1000 items, of which 100 are parameters.
            params, metrics = [Param(*pair) for pair in shown_params.items()], _points(points)
            for batch in range(max(math.ceil(len(metrics) / 900), math.ceil(len(params) / 100))):
                some, few = metrics[900 * batch :][:900], params[100 * batch :][:100]
                client.log_batch(run_id, some, few)
            _use(client, run_id, datasets.of_trial(campaign.datasets, trial))
            client.set_terminated(run_id, VERDICTS[trial.verdict.kind].run_status, end_time=end)
            self._show(client, campaign, [key for key, *_ in points if not key.startswith("system/")])
            with self._store.uploading():
                _upload(client, run, trial, place)
            return run_id

    def log_traces(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        from tasks.tracking import traces

        with self._reach() as client:
            experiment = self._experiment(client, campaign.environment)
            run = find_run(client, experiment, trial_key(campaign, trial))
            if run is None:  # deleted by somebody, or recorded elsewhere
                return ""
            run_id: str = run.info.run_id
            traces.send(client.tracking_uri, experiment, run_id, campaign, trial, files.dir)
            return run_id

    def log_progress(
        self, campaign: CampaignRecord, trial: Trial, history: History, certificates: Certificates
    ) -> None:
        with self._reach() as client:
            self._summarise(client, campaign, history, certificates, progress_points(campaign, trial, history))
            self._mark(client, campaign, history)

    def log_certificates(self, campaign: CampaignRecord, history: History, certificates: Certificates) -> None:
        with self._reach() as client:
            points = certificate_points(campaign, certificates)
            self._summarise(client, campaign, history, certificates, points)

    def register(self, campaign: CampaignRecord, certificate: Certificate, champion: Champion, run_id: str) -> str:
        with self._reach() as client:
            parent = self._parent(client, campaign)
            told = registry.register(client, self._store, campaign, certificate, champion, run_id, parent)
            client.set_tag(parent, "model", told)
            return told

    def close_campaign(
        self, campaign: CampaignRecord, status: Ending, history: History, certificates: Certificates, folder: Path
    ) -> None:
        with self._reach() as client:
            points = [*summary_points(campaign, history, certificates), *certificate_points(campaign, certificates)]
            parent = self._summarise(client, campaign, history, certificates, points, status)
            if client.get_run(parent).info.status != ENDED[status]:
                ends = [decided(campaign, trial) for trial in history]
                ends += [ended(campaign, one) for one in certificates]
                end = max(ends, default=milliseconds(campaign.created))
                client.set_terminated(parent, ENDED[status], end_time=end)
            with self._store.uploading(), safe_read.parcel(folder) as parcel:
                if folder.is_dir():
                    safe_read.pack_campaign(folder, parcel)
                    client.log_artifacts(parent, str(parcel))

    def urls(self, campaign: CampaignRecord) -> dict[str, str]:
        with self._reach() as client:
            experiment = self._experiment(client, campaign.environment)
        trials, nights = trials_view(campaign), nights_view(campaign)
        fragments = {
            "": trials.fragment(experiment),
            "charts_": trials.fragment(experiment, charts=True),
            "nights_": nights.fragment(experiment),
        }
        if self._store.served:
            return {f"{which}url": f"{self._store}/{fragment}" for which, fragment in fragments.items()}
        # The job runner is eight processes that are not needed.
        command = f"{LIGHT} mlflow ui --backend-store-uri {shlex.quote(str(self._store))} --port 5000"
        return {"command": command} | {f"{which}path": f"/{where}" for which, where in fragments.items()}

    def _summarise(
        self, client: MlflowClient, campaign: CampaignRecord, history: History, certificates: Certificates,
        points: Sequence[MetricPoint], state: str = "running",
    ) -> str:  # fmt: skip
        parent = self._parent(client, campaign)
        tags = state_tags(campaign, history, certificates, state)
        client.log_batch(parent, _points(points), tags=_run_tags(tags))
        return parent

    @contextmanager
    def _reach(self) -> Iterator[MlflowClient]:
        try:
            with self._store.reach() as client:
                yield client
        except Unreachable:
            # A run may have been deleted in the UI: look it up next time.
            self._experiments.clear()
            self._parents.clear()
            self._champions.clear()
            self._metrics.clear()
            raise

    def _show(self, client: MlflowClient, campaign: CampaignRecord, metrics: Iterable[str]) -> None:
        """Prepare the campaign's pages, again if a metric has no chart yet."""
        known = self._metrics.get(campaign.campaign_id)
        if known is not None and known.issuperset(metrics):
            return
        from mlflow.exceptions import MlflowException

        every = {*(known or ()), *metrics}
        experiment = self._experiment(client, campaign.environment)
        for view in (trials_view(campaign, every), nights_view(campaign)):
            # A server of another version may refuse a long tag: then its default page is shown.
            with suppress(MlflowException):
                client.set_experiment_tag(experiment, *view.tag)
        self._metrics[campaign.campaign_id] = every

    def _mark(self, client: MlflowClient, campaign: CampaignRecord, history: History) -> None:
        """Put the tag `champion` on the champion's run, and on no other run of the campaign."""
        champion = best(history)
        if champion is None or self._champions.get(campaign.campaign_id) == champion.number:
            return
        experiment = self._experiment(client, campaign.environment)
        marked = f"tags.campaign_id = '{campaign.campaign_id}' and tags.champion = '{MARK}'"
        run = find_run(client, experiment, trial_key(campaign, champion))
        if run is None:  # it is not recorded yet, and will be tagged then
            return
        client.set_tag(run.info.run_id, "champion", MARK)
        for other in client.search_runs([experiment], marked):
            if other.info.run_id != run.info.run_id:
                client.delete_tag(other.info.run_id, "champion")
        self._champions[campaign.campaign_id] = champion.number

    def _experiment(self, client: MlflowClient, environment: str) -> str:
        if environment not in self._experiments:
            # A server knows its artifact root; a database would use the working directory.
            folder = self._store.home.absolute() / "artifacts" / metric_key(environment)
            location = None if self._store.served else folder.as_uri()
            self._experiments[environment] = ensure_experiment(client, f"nightshift/{environment}", location)
        return self._experiments[environment]

    def _parent(self, client: MlflowClient, campaign: CampaignRecord) -> str:
        """The campaign's run, created if missing, with its present tags and specification."""
        if known := self._parents.get(campaign.campaign_id):
            return known
        from mlflow.entities import Param

        experiment = self._experiment(client, campaign.environment)
        tags = campaign_tags(campaign)
        start = milliseconds(campaign.created)
        with self._store.lock():
            run = find_run(client, experiment, campaign.campaign_id)
            run = run or client.create_run(experiment, start, tags, campaign.campaign)
        spec, stored = shown(campaign.spec), run.data.params
        # A limit may change on resume, an MLflow parameter may not: a new value becomes a tag.
        tags |= {f"spec.{name}": value for name, value in spec.items() if stored.get(name, value) != value}
        params = [Param(name, value) for name, value in spec.items() if name not in stored]
        run_id: str = run.info.run_id
        client.log_batch(run_id, params=params, tags=_run_tags(tags))
        _use(client, run_id, campaign.datasets)
        self._parents[campaign.campaign_id] = run_id
        return run_id

    def _child(self, client: MlflowClient, campaign: CampaignRecord, trial: Trial, tags: dict[str, str]) -> Run:
        """The trial's run with exactly these of our tags, created if missing."""
        tags |= {"mlflow.parentRunId": self._parent(client, campaign)}
        experiment = self._experiment(client, campaign.environment)
        with self._store.lock():
            run = find_run(client, experiment, tags["idempotency_key"])
            if run is not None and contradicts(run.data.metrics, run.data.params, trial):
                client.delete_run(run.info.run_id)
                self._champions.pop(campaign.campaign_id, None)
                run = None
            if run is None:
                return client.create_run(
                    experiment, trial_times(campaign, trial)[0], tags, trial_run_name(campaign, trial)
                )
        client.log_batch(run.info.run_id, tags=_run_tags(tags))
        for stale in {"level", "lineage.commit", "due"} & (run.data.tags.keys() - tags.keys()):
            client.delete_tag(run.info.run_id, stale)
        return run


def locate(stated: str | None, home: Path) -> Tracker:
    """Where to record: as stated, else the Block "nightshift", MLFLOW_TRACKING_URI, or sqlite in `home`.

    Raises Refused if MLflow cannot record there or the store is of another version, ConnectionError if the Prefect
    server that may have the Block does not answer.
    """
    if stated:
        return _tracker(stated, home)
    if saved := _saved_block(home):
        return _tracker(saved[0], home, saved[1])
    return _tracker(os.environ.get("MLFLOW_TRACKING_URI") or _own(home), home)


def _own(home: Path) -> str:
    return f"sqlite:///{home.absolute() / OWN}"


def _tracker(uri: str, home: Path, secrets: Mapping[str, str] | None = None) -> Tracker:
    if uri == "off":
        return Tracker()
    scheme, separator, rest = uri.partition("://")
    kind, _, driver = scheme.partition("+")
    if not separator or kind not in SCHEMES:
        raise Refused(
            f"tracking cannot go to {without_passwords(uri)!r}: MLflow keeps nothing in plain folders any more. Give "
            f"{_own(home)}, the http(s) address of a server, or off"
        )
    if kind == "sqlite":
        if rest in ("", "/", "/:memory:"):
            raise Refused(f"tracking cannot go to {uri!r}: name a file, as in sqlite:////tmp/mlflow.db")
        # A relative path would change with the working directory.
        path = Path(rest[1:]).absolute()
        schema.check(path)
        uri = f"sqlite:///{path}"
    if kind in DRIVERS and find_spec(driver := driver or DRIVERS[kind]) is None:
        remedy = f"install it, or name another that SQLAlchemy knows, as in {kind}+DRIVER://"
        if kind == "postgresql":
            remedy = "pip install 'psycopg[binary]>=3.2,<4', the extra `postgres`, and write postgresql+psycopg://"
        where = f"tracking cannot go to {without_passwords(uri)!r}"
        raise Refused(f"{where}: the driver {driver} is not installed: {remedy}")
    return Mlflow(uri.rstrip("/"), home, secrets)


def api_with_blocks(home: Path) -> str | None:
    """The Prefect API that may have the Block: the stated one, else that of the home's own server while it runs."""
    if stated := os.environ.get("PREFECT_API_URL"):
        return stated
    note = Daemon(home / ".prefect", "server").living()
    return note.url if note else None


def _saved_block(home: Path) -> tuple[str, dict[str, str]] | None:
    """Address and credentials in the Tracking Block; None without a Prefect server or Block."""
    api = api_with_blocks(home)
    if api is None:
        return None
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    from blocks.tracking import Tracking

    settings: dict[Any, Any] = {PREFECT_API_URL: api}
    if (ours := running_at(api.rstrip("/"), home, "server")) and ours.auth:
        settings[PREFECT_API_AUTH_STRING] = stored_login(home)
    try:
        # Prefect may have been imported before the address was set, and would start its own server.
        with temporary_settings(settings), get_client(sync_client=True) as client:
            saved = client.read_block_document_by_name("nightshift", Tracking.get_block_type_slug())
    except ObjectNotFound:
        return None
    except httpx.TransportError as error:
        stated = "PREFECT_API_URL" in os.environ
        where = f"PREFECT_API_URL={api}: start it, or unset it" if stated else f"{api}: `nightshift down` ends it"
        raise ConnectionError(f"no Prefect server answers at {where}") from error
    block = Tracking.model_validate(saved.data)
    secrets = {
        "MLFLOW_TRACKING_USERNAME": block.username,
        "MLFLOW_TRACKING_PASSWORD": block.password and block.password.get_secret_value(),
        "MLFLOW_TRACKING_TOKEN": block.token and block.token.get_secret_value(),
    }
    return block.uri, {name: value for name, value in secrets.items() if value}


def _upload(client: MlflowClient, run: Run, trial: Trial, place: TrialDir) -> None:
    """Upload the small files always, and a keep's checkpoint once: a decided trial does not change."""
    run_id, sent = run.info.run_id, run.data.tags.get("checkpoint", "").startswith("out/")
    due = trial.verdict.kind == "keep" and not sent
    with safe_read.parcel(place.path) as parcel:
        if place.path.is_dir():
            safe_read.pack_trial(place, log_tail(place.log), parcel)
            told = safe_read.pack_folder(place.out, parcel) if due else ""
            client.log_artifacts(run_id, str(parcel))
            if told:
                client.set_tag(run_id, "checkpoint", told)


def _use(client: MlflowClient, run_id: str, used: Iterable[datasets.UsedDataset]) -> None:
    if inputs := datasets.inputs(used):
        client.log_inputs(run_id, inputs)


def _points(points: Sequence[MetricPoint]) -> list[Metric]:
    from mlflow.entities import Metric

    return [Metric(*point) for point in points]


def _run_tags(tags: Mapping[str, str]) -> list[RunTag]:
    from mlflow.entities import RunTag

    return [RunTag(key, value) for key, value in tags.items()]
