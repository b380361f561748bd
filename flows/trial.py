"""The trial: train and judge one run of a campaign, as a flow of its own. It is what a work pool of GPUs runs.

A campaign with `launch = "gpu-pair"` has its runs done by the deployment `trial/gpu-pair`, on whichever machine its
worker is (flows/engine/launching.py). What is to be done, and what comes of it, are files in the campaign's
directory, which
both machines see; nothing that counts travels through Prefect. This flow never takes the campaign's lock and writes
nothing but that run: its directory, and the results of its tasks.
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
from flows.engine.deployment_run import NOT_SHARED
from flows.engine.runner import Bench
from flows.spec.campaign_spec import CampaignSpec
from flows.views.status import stored_spec
from tasks.checkpoint import history_digest
from tasks.recipes import output, preparing
from tasks.sandbox.confinement import listed
from tasks.sandbox.isolation import check_given
from tasks.store.launch_files import POLL_SECONDS, VISIBLE_SECONDS, Launches, LaunchRequest, NotShared
from tasks.store.ledger import FORMAT, Campaign, Ledger
from tasks.store.workspace import TrialDir
from tasks.system import interrupt, orphans
from tasks.system.clock import clock
from tasks.system.home import home

if TYPE_CHECKING:
    from environments import Environment
    from tasks.trial import History


@flow(name="trial", flow_run_name="{campaign} {run}", persist_result=False)
def trial(
    campaign: str, folder: str, run: str, launch: int, token: str, runs: str | None = None
) -> State[None]:
    """Train and judge one run of a campaign whose directory is on storage that this machine shares.

    Args:
        folder: The campaign's directory, as the machine that runs the campaign calls it.
        run: Which run of which trial: the name of its folder below `launches`.
        launch: How often it was launched, this time included.
        token: What the file that says what to do must hold.
        runs: Where this machine has the directory of all campaigns; None: where the other has it.
    """
    path = Path(runs, Path(folder).name) if runs else Path(folder)
    launches = Launches(path, run)
    with interrupt.deferred():
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
    """Do one run of the campaign in `path`, on this machine.

    Raises:
        Refused: what is there is not what the campaign knows.
    """
    ledger = open_at(path)
    ledger.verify()
    spec = CampaignSpec.of(**{**stored_spec(ledger), "launch": "here", "parallel": 1})
    history, elsewhere = _history(ledger, asked), _elsewhere(path, asked.elsewhere)
    see_prepared(elsewhere or ledger.environment)
    problem = elsewhere or ledger.environment
    check_given(spec.isolation.level, home(), listed(problem))
    slots = spec.slots(problem)
    bench = Bench(spec, ledger, history, slots, elsewhere, launched=True)
    if asked.step == "untrained":
        bench.control(asked.at.number, asked.proposal, asked.siblings[0])
    else:
        bench.measure(
            asked.at.number, asked.proposal, asked.at.part, asked.purpose, asked.siblings, asked.early,
            TrialDir(path / asked.place), asked.judged,
        )  # fmt: skip


def open_at(path: Path) -> Ledger:
    """The campaign whose directory is `path`, wherever this machine keeps its own.

    Raises:
        Refused: it was written by a newer version.
    """
    raw = json.loads((path / "campaign.json").read_text())
    if raw.get("format", 0) > FORMAT:
        raise Refused(
            f"{path}/campaign.json has format {raw['format']}, Nightshift on {platform.node()} reads up to {FORMAT}: "
            "have one version on all machines"
        )
    return Ledger(path, Campaign(**raw))


def _history(ledger: Ledger, asked: LaunchRequest) -> History:
    """The trials that the run may know, as soon as they can be seen here.

    Raises:
        Refused: they are others than those that the campaign knows.
    """
    deadline = clock() + VISIBLE_SECONDS
    while True:
        found = ledger.history()[: asked.seen]
        if (ledger.at(asked.at.number, asked.at.part), history_digest(found)) == (asked.at, asked.history):
            return found
        if clock() > deadline:
            raise Refused(
                f"{ledger.trials} on {platform.node()} is not what the campaign knows that asked for {asked.at}, after "
                f"{asked.seen} trials: see that both machines have the same storage, and the same version"
            )
        interrupt.wait(POLL_SECONDS)


def see_prepared(environment: Environment) -> None:
    """Wait until what the environment's recipe has made can be seen here; the campaign has had it made.

    Raises:
        Refused: it cannot be seen, or is not what the campaign began with.
    """
    deadline = clock() + VISIBLE_SECONDS
    while environment.prepared and output.read(environment.prepared) is None:
        if clock() > deadline:
            raise Refused(
                f"{environment.prepared} is not there on {platform.node()}: what the recipe of {environment.name} has "
                "made lies beside the campaigns, so share the whole directory of them"
            )
        interrupt.wait(POLL_SECONDS)
    preparing.compare(environment)


def _elsewhere(path: Path, name: str) -> Environment | None:
    if not name:
        return None
    folder = path / "certificates" / f"on-{name}" / "environment"
    return preparing.laid(environments.load(folder, {}, name), path.parent)
