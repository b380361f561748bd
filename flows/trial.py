"""The trial as a flow of its own: train and judge one run of a campaign on a worker, for example on a GPU machine.

A campaign with `launch = "gpu-pair"` runs its trainings by the deployment `trial/gpu-pair`
(flows/engine/launching.py). Request and results are files in the campaign's directory, which both machines share;
nothing that counts travels through Prefect. This flow never takes the campaign's lock, and writes only that run's
directory and task results.
"""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from prefect import State, flow
from prefect.states import Completed, Failed

import environments
from environments.plugins import Refused
from flows import campaign
from flows.engine.attempt import Control, Train
from flows.engine.deployment_run import NOT_SHARED
from flows.engine.night import Terms
from flows.engine.recovery import cancellable
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.refusal import fails_when_refused
from flows.views.status import stored_spec
from tasks.bench import Bench, RunPlan
from tasks.checkpoint import results_in
from tasks.recipes import output, preparing
from tasks.sandbox.confinement import outside
from tasks.sandbox.isolation import check_given
from tasks.store.launch_files import POLL_SECONDS, VISIBLE_SECONDS, Launches, LaunchRequest, NotShared
from tasks.store.ledger import FORMAT, Campaign, Ledger, frozen_elsewhere
from tasks.system import interrupt, orphans
from tasks.system.clock import clock
from tasks.system.home import home
from tasks.task_key import history_digest

if TYPE_CHECKING:
    from environments import Environment
    from tasks.trial import History


@flow(name="trial", flow_run_name="{campaign} {run}", persist_result=False)
@fails_when_refused
def trial(campaign: str, folder: str, run: str, launch: int, token: str, runs: str | None = None) -> State[None]:
    """Train and judge one run of a campaign, whose directory is on shared storage.

    Args:
        folder: The campaign's directory, as named on the campaign's machine.
        run: The run: its folder's name below `launches`.
        launch: Number of this launch, from 1.
        token: What the request file must hold.
        runs: This machine's directory of all campaigns; None: the same path as there.
    """
    path = Path(runs, Path(folder).name) if runs else Path(folder)
    launches = Launches(path, run)
    with cancellable(), interrupt.deferred():
        try:
            asked = launches.read(launch, token).asked
        except NotShared as wrong:
            return Failed(name=NOT_SHARED, message=str(wrong))
        launches.answer(launch, token, home())
        with launches.alone():
            if not asked.is_done(path / "results"):
                orphans.end(replace(asked.at, launched=True).marker)
                measure(path, asked)
    return Completed(message=f"{campaign} {run}: done on {platform.node()}")


def measure(path: Path, asked: LaunchRequest) -> None:
    """Do one run of the campaign in `path`, on this machine. Refused if the campaign uses another directory."""
    ledger = open_at(path)
    ledger.verify()
    spec = CampaignSpec.of(**{**stored_spec(ledger), "launch": "here", "parallel": 1})
    history, transfer = _history(ledger, asked), None
    if name := asked.elsewhere:
        frozen = environments.load(frozen_elsewhere(path, name) / "environment", {}, name)
        transfer = preparing.laid(frozen, path.parent)
    problem = transfer or ledger.environment
    see_prepared(problem)
    check_given(spec.isolation.level, home(), outside(problem))
    bench = Bench(ledger, spec.isolation, spec.slots(problem), 1, transfer, asked.budget, launched=True)
    plan = RunPlan(asked.at, asked.proposal, asked.place, asked.purpose, asked.early, asked.judged, asked.block)
    step = Control(plan, asked.siblings[0]) if asked.step == "untrained" else Train(plan)
    with results_in(ledger.results):
        made = campaign.measure(Terms(spec, ledger, history, bench), step)
        while not made.waited_for.done():
            interrupt.wait(POLL_SECONDS)
        made.last_task.result(raise_on_failure=False)


def open_at(path: Path) -> Ledger:
    """The campaign in `path`, independent of this machine's home. Refused if a newer version wrote it."""
    raw = json.loads((path / "campaign.json").read_text())
    if raw.get("format", 0) > FORMAT:
        raise Refused(
            f"{path}/campaign.json has format {raw['format']}, Nightshift on {platform.node()} reads up to {FORMAT}: "
            "have one version on all machines"
        )
    return Ledger(path, Campaign(**raw))


def _history(ledger: Ledger, asked: LaunchRequest) -> History:
    """The trials that the run may know, once they are visible here. Refused if they differ from the campaign's."""
    deadline = clock() + VISIBLE_SECONDS
    while True:
        history = ledger.history()[: asked.seen]
        if (ledger.key(asked.at.number, asked.at.part), history_digest(history)) == (asked.at, asked.history):
            return history
        if clock() > deadline:
            raise Refused(
                f"{ledger.trials} on {platform.node()} is not what the campaign knows that asked for {asked.at}, after "
                f"{asked.seen} trials: see that both machines have the same storage, and the same version"
            )
        interrupt.wait(POLL_SECONDS)


def see_prepared(environment: Environment) -> None:
    """Wait until the prepared files of a recipe are visible here. Refused if they differ from the campaign's."""
    deadline = clock() + VISIBLE_SECONDS
    while environment.prepared and output.read(environment.prepared) is None:
        if clock() > deadline:
            raise Refused(
                f"{environment.prepared} is not there on {platform.node()}: what the recipe of {environment.name} has "
                "made lies beside the campaigns, so share the whole directory of them"
            )
        interrupt.wait(POLL_SECONDS)
    preparing.compare(environment)
