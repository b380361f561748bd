"""The campaign: propose, train, evaluate, decide, record, until a stopping criterion applies; then certify the
champion.

Every step but the record is a task whose result is a file in the campaign's directory (tasks/cache_key.py). So this
function can be killed at any moment and called again: finished steps are read from their files, unfinished ones are
done again. The only memory is `history`.
"""

from __future__ import annotations

from prefect import State, flow, runtime
from prefect.states import Completed, Failed

from flows.engine import chaining, launching, run_certificate, stopping
from flows.engine.ahead import ProposingAhead
from flows.engine.campaign_state import CampaignState
from flows.engine.cancelling import cancellable, reported
from flows.engine.next_trial import FULL, WAITS, next_trial, undone
from flows.engine.preparation import ensure_prepared, warm_starts
from flows.engine.recovery import check_progress, crash_the_dead, presence, wait_for_the_other, wait_for_the_server
from flows.engine.redecide import check_pending, finish_pending
from flows.engine.slurm.request import request_of
from flows.engine.worker_pool import WorkerPool
from flows.report.seeing import record_at_the_end
from flows.report.write import write_report
from flows.spec.advanced import Advanced
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.form import form
from flows.spec.naming import campaign_name, first_after_start, flow_run_name, tag
from flows.spec.refusal import fails_when_refused
from flows.spending.budget import CampaignBudget, check_budget, gpus_of
from flows.views import run_log
from flows.views.artifacts import Artifacts
from flows.views.status import CampaignEnd
from tasks.record import reconcile
from tasks.store.campaign_lock import Life
from tasks.tracking.outbox import Outbox
from tasks.tracking.sender import Sender

LOOK_SECONDS = 2.0
"""Interval of checks for an approval."""
FIRST_LOOK_SECONDS = 0.25
"""The same for a slot that the baseline needs no longer."""


@form
@flow(
    name="campaign", flow_run_name=flow_run_name, on_running=[tag], persist_result=True, result_serializer="json",
    validate_parameters=False,  # CampaignSpec says what is wrong, and where earlier forms had an option
)  # fmt: skip
@fails_when_refused
def campaign(
    environment: str = "lunar_lander",
    name: str | None = None,
    proposer: str = "tpe",
    rule: str = "certify",
    cancel: str = "curve",
    replicates: int = 1,
    trials: int = 20,
    hours: float = 8.0,
    until: str | None = None,
    parallel: int = 1,
    launch: str = "here",
    seed: int | None = None,
    tracking: str | None = None,
    advanced: Advanced = Advanced(),
) -> State[str]:
    """Improve an environment's program: propose, train, evaluate, decide, until a stopping criterion applies."""
    spec = CampaignSpec.of(
        environment=environment, name=campaign_name(name, environment), proposer=proposer, rule=rule,
        cancel=cancel, replicates=replicates, trials=trials, hours=hours, until=first_after_start(until),
        parallel=parallel, launch=launch, seed=seed, tracking=tracking, advanced=advanced,
    )  # fmt: skip
    spec.check()
    spec.loaded_proposer.preflight(check_budget(spec))
    launching.check(spec.launch, request_of(spec))
    ledger, run = spec.open(), runtime.flow_run
    if chaining.has_handed_over(ledger, run.id):
        return chaining.hand_over(spec, ledger, len(ledger.history()))
    wait_for_the_other(ledger, run.id)
    with (
        reported(ledger), cancellable(), Life(ledger, flow_run_id=run.id, page=run.ui_url) as life, presence(run.id)
    ):  # fmt: skip
        check_progress(ledger, run.id)
        spec.store(ledger)
        crash_the_dead(ledger, run.id)
        launching.end_left(ledger, spec.launch)
        ensure_prepared(ledger, spec.launch)
        slots = spec.slots(ledger.environment)
        ledger.event("slots", parallel=spec.parallel, locks=slots.locks if spec.launch == "here" else {})
        money = CampaignBudget(spec, ledger, gpus_of(spec, ledger.environment, slots))
        check_pending(spec, ledger, finished := reconcile(ledger), money)
        finished = finish_pending(spec, ledger, slots, finished)
        outbox = Outbox(ledger, spec.tracking, run.id, finished)
        with warm_starts(spec, ledger, ledger.environment), Artifacts(ledger, run.id, write_report) as artifacts:
            artifacts.show(finished)
            run_log.begin(ledger, finished)
            chunk = len(finished), spec.parallel
            before, full = chaining.shown_before(*chunk), chaining.full(*chunk)
            with Sender(outbox) as sender, WorkerPool(spec.parallel) as pool:
                state = CampaignState(spec, ledger, sender, slots, finished[:before], artifacts.show, money)
                for number, proposal in undone(state, finished):
                    state.trial(number, proposal)
                ahead = ProposingAhead(state)
                while not isinstance(coming := next_trial(state, pool, life, full), stopping.Stop):
                    if coming == FULL:
                        break
                    if coming == WAITS:
                        ahead.propose(pool, life, full)
                        pool.wait(LOOK_SECONDS if state.history else FIRST_LOOK_SECONDS)
                    else:
                        pool.start(state.trial, *coming)
            if not isinstance(coming, stopping.Stop):  # after the last trial was sent, and the sender met no fault
                return chaining.hand_over(spec, ledger, len(state.history))
            if coming.state == "finished":
                done = run_certificate.at_the_end(state.runner)
                coming = coming if done else stopping.full(ledger.path) or stopping.ASKED
            if coming.state == "finished":
                record_at_the_end(ledger, spec.isolation.level, spec.advanced.allow_unsandboxed)
            artifacts.show(state.history, CampaignEnd(coming.state, coming.reason))
            run_log.end(ledger, state.history, coming.reason)
        outbox.close(coming.state)  # with the certificate and the final picture
        ledger.event("end", state=coming.state, reason=coming.reason)
    wait_for_the_server(ledger)
    message = f"{spec.name}: {coming.reason}"
    return Failed(message=message) if coming.state == "failed" else Completed(message=message, data=spec.name)
