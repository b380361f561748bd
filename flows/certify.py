"""The flow that certifies a campaign's champion later, again, in other environments, or for another budget."""

from __future__ import annotations

from typing import Annotated

from prefect import State, flow, runtime
from prefect.states import Completed

from flows.engine import run_certificate, stopping
from flows.engine.cancelling import cancellable, reported
from flows.engine.elsewhere import cost, longest, runners
from flows.engine.preparation import ensure_prepared, warm_starts
from flows.engine.recovery import crash_the_dead, presence
from flows.engine.redecide import check_pending, finish_pending
from flows.report.write import write_report
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.certify_options import CERTIFY
from flows.spec.form import stated, titled
from flows.spec.naming import tag_existing
from flows.spec.refusal import fails_when_refused
from flows.spending.budget import CampaignBudget, gpus_of
from flows.views.artifacts import Artifacts
from flows.views.status import CampaignEnd, stored_spec
from tasks.describe import where
from tasks.record import reconcile
from tasks.store.campaign_lock import Life, end_of_the_search
from tasks.store.ledger import Ledger
from tasks.tracking.outbox import Outbox

Name = Annotated[str, titled("Campaign", "Name of a campaign that has ended.")]
On = Annotated[list[str], stated(CERTIFY["on"])]
Runs = Annotated[int | None, stated(CERTIFY["runs"])]
Budget = Annotated[str, stated(CERTIFY["budget"])]


@flow(
    name="certify", flow_run_name="{name} certificate", on_running=[tag_existing], persist_result=True,
    result_serializer="json",
)  # fmt: skip
@fails_when_refused
def certify(name: Name, on: On = [], runs: Runs = None, budget: Budget = "") -> State[str]:  # noqa: B006 (Prefect shows the default)
    """Compare fresh runs of a campaign's champion with fresh runs of its baseline."""
    ledger, run = Ledger.open(name), runtime.flow_run
    spec = CampaignSpec.of(**stored_spec(ledger))
    before = end_of_the_search(ledger, ("certify", "rerun"))
    with (
        reported(ledger), cancellable(), Life(ledger, flow_run_id=run.id, page=run.ui_url, certify=True) as life,
        presence(run.id),
    ):  # fmt: skip
        crash_the_dead(ledger, run.id)
        ensure_prepared(ledger, spec.launch)
        slots = spec.slots(ledger.environment)
        money = CampaignBudget(spec, ledger, gpus_of(spec, ledger.environment, slots))
        check_pending(spec, ledger, history := reconcile(ledger), money)
        history = finish_pending(spec, ledger, slots, history)
        outbox = Outbox(ledger, spec.tracking, run.id, history)
        outcomes = []
        every = runners(ledger, on, budget)
        held = every[0].slots.locks if spec.launch == "here" else {}
        ledger.event("slots", parallel=spec.parallel, locks=held)
        with Artifacts(ledger, run.id, write_report) as artifacts:
            for runner in every:
                if runner.is_apart:
                    ledger.event("cost", words=cost(runner, runs))
                ensure_prepared(ledger, spec.launch, runner.elsewhere)
                money.check(history, f"the certificate in {runner.environment.name}", longest(runner, runs, parallel=1))
                with warm_starts(spec, ledger, runner.environment):
                    certificate = run_certificate.certify(runner, runs)
                    artifacts.show(history)
                    if certificate is None or not run_certificate.also_ablate(runner, certificate):
                        outcomes.append(stopping.no_room(ledger.path) or "asked to stop")
                        break
                outcome = "passed" if certificate.passed else certificate.reason
                outcomes.append(f"{where(certificate)}: {outcome}")
            due = stopping.stop(spec, ledger.environment, history, life.spent, asked=False)
            end = due or stopping.Stop("stopped", "certified before its trials were done")
            state, reason = before.get("state", end.state), before.get("reason", end.reason)
            artifacts.show(history, CampaignEnd(state, reason))
        outbox.close(state)
        ledger.event("end", state=state, reason=reason)
    return Completed(message="; ".join(outcomes), data=name)
