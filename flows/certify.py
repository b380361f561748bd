"""The flow that certifies a campaign's champion later, again, or in other environments."""

from __future__ import annotations

import os
import shutil
from typing import Annotated

from prefect import State, flow, runtime
from prefect.states import Completed

import environments
from environments import Environment
from environments.plugins import Refused
from flows.engine import run_certificate, stopping
from flows.engine.cancelling import cancellable, reported
from flows.engine.preparation import ensure_prepared
from flows.engine.recovery import crash_the_dead, presence
from flows.engine.redecide import finish_pending
from flows.engine.runner import Runner
from flows.report.write import write_report
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.environment import checked_environment
from flows.spec.form import titled
from flows.spec.naming import tag_existing
from flows.spec.refusal import fails_when_refused
from flows.views.artifacts import Artifacts
from flows.views.status import CampaignEnd, stored_spec
from tasks.recipes import preparing
from tasks.record import reconcile
from tasks.sandbox import outputs
from tasks.store.campaign_lock import Life
from tasks.store.ledger import Ledger, ended, freeze
from tasks.tracking.outbox import Outbox

Name = Annotated[str, titled("Campaign", "Name of a campaign that has ended.")]
On = Annotated[list[str], titled("On", "Other environments to certify in; none: the campaign's own.")]
Runs = Annotated[
    int | None, titled("Runs", "Fresh runs of each arm at most; none: as at the end of a campaign.", ge=2, le=100)
]


@flow(
    name="certify", flow_run_name="{name} certificate", on_running=[tag_existing], persist_result=True,
    result_serializer="json",
)  # fmt: skip
@fails_when_refused
def certify(name: Name, on: On = [], runs: Runs = None) -> State[str]:  # noqa: B006 (Prefect shows the default)
    """Compare fresh runs of a campaign's champion with fresh runs of its baseline."""
    ledger, run = Ledger.open(name), runtime.flow_run
    spec = CampaignSpec.of(**stored_spec(ledger))
    before = ended(ledger)
    with reported(ledger), cancellable(), Life(ledger, flow_run_id=run.id, page=run.ui_url) as life, presence(run.id):
        crash_the_dead(ledger, run.id)
        ensure_prepared(ledger, spec.launch)
        history = finish_pending(spec, ledger, spec.slots(ledger.environment), reconcile(ledger))
        outbox = Outbox(ledger, spec.tracking, run.id, history)
        outcomes = []
        with Artifacts(ledger, run.id, write_report) as artifacts:
            for runner in runners(ledger, on):
                ensure_prepared(ledger, spec.launch, runner.elsewhere)
                certificate = run_certificate.certify(runner, runs)
                artifacts.show(history)
                if certificate is None or not run_certificate.also_ablate(runner, certificate):
                    outcomes.append("asked to stop")
                    break
                outcome = "passed" if certificate.passed else certificate.reason
                outcomes.append(f"{runner.environment.name}: {outcome}")
            due = stopping.stop(spec, ledger.environment, history, life.spent, asked=False)
            end = due or stopping.Stop("stopped", "certified before its trials were done")
            state, reason = before.get("state", end.state), before.get("reason", end.reason)
            artifacts.show(history, CampaignEnd(state, reason))
        outbox.close(state)
        ledger.event("end", state=state, reason=reason)
    return Completed(message="; ".join(outcomes), data=name)


def runners(ledger: Ledger, on: list[str]) -> list[Runner]:
    """The runners of a certificate: one for each environment in `on`, or one for the campaign's own."""
    spec = CampaignSpec.of(**stored_spec(ledger))
    history, slots = ledger.history(), spec.slots(ledger.environment)
    ledger.event("slots", locks=slots.locks if spec.launch == "here" else {})
    others = [_frozen(ledger, checked_environment(reference, {})) for reference in on]
    return [Runner(spec, ledger, history, slots, other) for other in others] or [Runner(spec, ledger, history, slots)]


def check_fits(campaign: Environment, other: Environment) -> None:
    """Refuse an environment in which a campaign's champion cannot run, or which is the campaign's own."""
    where = f"--on {other.name}"
    if other.name == campaign.name:
        raise Refused(f"{where}: that is the campaign's own environment: leave --on out")
    if other.trainer != campaign.trainer:
        raise Refused(
            f"{where}: it trains with {other.trainer!r}, the campaign with {campaign.trainer!r}: "
            "name an environment with the same trainer"
        )
    if other.program or campaign.program:
        owner = other.name if other.program else campaign.name
        raise Refused(
            f"{where}: {owner} has a program of its own: only a champion of a trainer's program can run elsewhere"
        )


def _frozen(ledger: Ledger, environment: Environment) -> Environment:
    """Another environment, frozen when it is first certified in. Refused if it has changed since."""
    check_fits(ledger.environment, environment)
    path = ledger.path / "certificates" / f"on-{environment.name}"
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    freeze(environment, fresh)
    try:
        if not path.is_dir():
            fresh.rename(path)
        elif outputs.digest(path / "environment") != outputs.digest(fresh / "environment"):
            raise Refused(f"{environment.folder} has changed since the first certificate in it: it froze {path}")
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return preparing.laid(environments.load(path / "environment", {}, environment.name), ledger.path.parent)
