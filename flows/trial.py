"""The trial as a flow of its own: train and judge one run of a campaign on a worker, for example on a GPU machine.

A campaign with `launch = "gpu-pair"` has its runs done by the deployment `trial/gpu-pair` (flows/engine/launching.py).
It never takes the campaign's lock, and writes that run's directory, task results and events of its slot alone.
"""

from __future__ import annotations

import platform
from pathlib import Path

from filelock import FileLock
from prefect import State, flow
from prefect.states import Completed

import environments
from environments import Environment
from environments.plugins import Refused
from flows import campaign
from flows.engine.launching import FLOW, POLL_SECONDS, REQUEST, SHARE, LaunchRequest, once_visible
from flows.engine.night import Night, bench_of
from flows.engine.recovery import cancellable
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.flow import fails_when_refused
from tasks import preparing
from tasks.checkpoint import result_of, results_in
from tasks.sandbox.confinement import outside
from tasks.sandbox.isolation import check_given
from tasks.store.ledger import Ledger, frozen_elsewhere
from tasks.system import interrupt, orphans
from tasks.system.home import home
from tasks.trial import History


@flow(name=FLOW, persist_result=False)
@fails_when_refused
def trial(folder: str, request: str, campaign_id: str, runs: str | None = None) -> State[None]:
    """Train and judge one run of a campaign, whose directory is on shared storage.

    Args:
        folder: The campaign's directory, as named on the campaign's machine.
        request: The file that says which run, relative to that directory.
        campaign_id: That of the campaign, which a directory of the same name may not be.
        runs: This machine's directory of all campaigns; None: the same path as there.
    """
    path = Path(runs, Path(folder).name) if runs else Path(folder)
    with cancellable(), interrupt.deferred():
        wanted = once_visible(lambda: _request(path / request, campaign_id))
        if wanted is None:
            raise Refused(
                f"{path / request} on {platform.node()} is not what the campaign in {folder} asks for, or not there: "
                f"{SHARE}"
            )
        lock = FileLock(path / wanted.plan.folder / "launch.lock")  # another launch, taken for dead, may be at it
        with lock.acquire(poll_interval=POLL_SECONDS, cancel_check=interrupt.check):  # type: ignore[arg-type]  # it raises
            if not wanted.is_done(path / "results"):
                orphans.end(wanted.plan.key.marker(launched=True))
                measure(path, wanted)
    return Completed(message=f"{wanted.name}: done on {platform.node()}")


def measure(path: Path, request: LaunchRequest) -> None:
    """Make one run of the campaign in `path`. Refused where the storage shows another history, or prepared files."""
    ledger = Ledger.at(path)
    ledger.verify()
    history, transfer = _history(ledger, request), None
    if name := request.transfer:
        frozen = environments.load(frozen_elsewhere(path, name) / "environment", {}, name)
        transfer = preparing.laid(frozen, path.parent)
    environment = transfer or ledger.environment
    see_prepared(environment)
    spec = CampaignSpec.of(**{**ledger.spec, "launch": "here", "parallel": 1})
    check_given(spec.isolation.level, home(), outside(environment))
    bench = bench_of(spec, ledger, transfer, request.budget, launched=True)
    with results_in(ledger.results):
        night = Night(spec, ledger, history, bench)
        made = campaign.measure(night, request.plan)
        try:
            while night.running:
                night.wait()
        finally:
            night.end_runs()
        made.first_result()
        result_of(made.last_task)


def see_prepared(environment: Environment) -> None:
    """Wait until the prepared files of a recipe are visible here. Refused if they differ from the campaign's."""
    prepared = environment.prepared
    if prepared and not once_visible(lambda: preparing.read(prepared)):
        raise Refused(f"{prepared} is not there on {platform.node()}: {SHARE}")
    preparing.compare(environment)


def _request(file: Path, campaign_id: str) -> LaunchRequest | None:
    """The request in a file; None if it is not there, or another campaign's."""
    try:
        request = REQUEST.validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    return request if request.plan.key.campaign_id == campaign_id else None


def _history(ledger: Ledger, request: LaunchRequest) -> History:
    """The trials that the run may know, once they are visible here; a rerun may have changed one of them since.
    Refused if they do not become visible."""
    if once_visible(lambda: len(ledger.history()) >= request.seen):
        return ledger.history()[: request.seen]
    raise Refused(
        f"{ledger.trials} on {platform.node()} shows {len(ledger.history())} decided trials, where the campaign had "
        f"{request.seen} when it asked for {request.plan.key}: {SHARE}"
    )
