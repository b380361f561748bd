"""The campaign: one night. Propose, train, evaluate, decide, record, until a guard fires; then prove what was found.

Every step is a task whose result is a file below the campaign's directory (tasks/checkpoint.py), so this function
can be killed at any moment and called again: what was finished comes back from its file, what was in flight is
done again. Nothing is remembered but `history`.
"""

from __future__ import annotations

from prefect import State, flow, runtime
from prefect.states import Completed, Failed

from flows.engine import chaining, launching, run_certificate, stopping
from flows.engine.campaign_state import CampaignState
from flows.engine.next_trial import FULL, WAITS, next_trial, undone
from flows.engine.outage import wait_for_the_server
from flows.engine.preparation import make_ready
from flows.engine.recovery import Presence, check_progress, crash_the_dead, wait_for_the_other
from flows.engine.redecide import complete
from flows.engine.worker_pool import Crew
from flows.spec.advanced import Advanced
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.naming import campaign_name, flow_run_name, tag
from flows.spec.options import form
from flows.views.artifacts import Showcase
from tasks.proposing.brief import RemainingBudget
from tasks.record import reconcile
from tasks.store.life import Life
from tasks.tracking.outbox import Outbox

LOOK_SECONDS = 2.0
"""Between two looks at whether a person has answered."""


@flow(
    name="campaign",
    flow_run_name=flow_run_name,
    on_running=[tag],
    persist_result=True,
    result_serializer="json",
)
@form
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
    """Improve an environment's program for a night: propose, train, evaluate, decide, until a guard fires."""
    spec = CampaignSpec.of(
        environment=environment, name=campaign_name(name, environment), proposer=proposer, rule=rule,
        cancel=cancel, replicates=replicates, trials=trials, hours=hours, until=until, parallel=parallel,
        launch=launch, seed=seed, tracking=tracking, advanced=advanced,
    )  # fmt: skip
    spec.check()
    spec.loaded_proposer.preflight(
        RemainingBudget(usd=spec.advanced.max_usd, tokens=spec.advanced.max_tokens)
    )
    launching.check(spec.launch)
    ledger, run = spec.open(), runtime.flow_run
    if chaining.has_handed_over(ledger, run.id):
        return chaining.hand_over(spec, ledger, len(ledger.history()))
    wait_for_the_other(ledger, run.id)
    with Life(ledger, flow_run_id=run.id, page=run.ui_url) as life, Presence(run.id):
        check_progress(ledger, run.id)
        spec.store(ledger)
        crash_the_dead(ledger, run.id)
        make_ready(ledger, spec.launch)
        slots = spec.slots(ledger.environment)
        finished = complete(spec, ledger, slots, reconcile(ledger))
        outbox = Outbox(ledger, spec.tracking, run.id, finished)
        with Showcase(ledger, run.id) as showcase:
            showcase.show(finished)
            chunk, full = chaining.begun(len(finished)), chaining.full(len(finished))
            night = CampaignState(spec, ledger, outbox, slots, finished[:chunk], showcase.show)
            for number, proposal in undone(night, finished):
                night.trial(number, proposal)
            with Crew(spec.parallel) as crew:
                while not isinstance(coming := next_trial(night, crew, life, full), stopping.Stop):
                    if coming == FULL:
                        outbox.drain()
                        return chaining.hand_over(spec, ledger, len(night.history))
                    if coming == WAITS:
                        crew.wait(LOOK_SECONDS)
                    else:
                        crew.start(night.trial, *coming)
            if coming.state == "finished":
                coming = coming if run_certificate.at_the_end(night.bench) else stopping.ASKED
                showcase.show(night.history)
        outbox.close(coming.state)  # takes the certificate and the last picture along
        ledger.event("end", state=coming.state, reason=coming.reason)
    wait_for_the_server(ledger)
    message = f"{spec.name}: {coming.reason}"
    return Failed(message=message) if coming.state == "failed" else Completed(message=message, data=spec.name)
