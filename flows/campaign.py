"""The campaign: propose, train, evaluate, decide, record, until a stop rule applies; then certify the champion.

Each step but the record is a Prefect task whose result is a file in the campaign's directory (tasks/checkpoint.py). So
this can be killed at any moment and called again: finished steps are read from their files, and only what was under way
is done again. The only memory is `night.history`: the trials in the order in which they were decided.
"""

from __future__ import annotations

from prefect import State, allow_failure, flow
from prefect.utilities.annotations import quote  # Prefect passes it on as it is

from flows.engine.attempt import Attempt, Control, Measurement, Step
from flows.engine.certifying import certify_at_the_end
from flows.engine.launching import launch, request_of
from flows.engine.night import Night, Terms, opened
from flows.engine.proposing import next_turn
from flows.engine.stopping import Stop, reached
from flows.spec.advanced import Advanced
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.form import form
from flows.spec.naming import campaign_name, first_after_start, flow_run_name, tag
from flows.spec.refusal import fails_when_refused
from tasks.bench import Bench
from tasks.checkpoint import result_in, result_of
from tasks.control import control
from tasks.decide import decide
from tasks.evaluate import evaluate
from tasks.propose import Nothing, propose
from tasks.record import record
from tasks.train import train


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
    """Improve an environment's program: propose, train, evaluate, decide, until a stop rule applies."""
    spec = CampaignSpec.of(
        environment=environment, name=campaign_name(name, environment), proposer=proposer, rule=rule,
        cancel=cancel, replicates=replicates, trials=trials, hours=hours, until=first_after_start(until),
        parallel=parallel, launch=launch, seed=seed, tracking=tracking, advanced=advanced,
    )  # fmt: skip
    with opened(spec) as night:
        stop = search(night)
        night.close(certify_at_the_end(night, stop, measure))
    return night.state


def search(night: Night, only: int | None = None) -> Stop:
    """Try proposals, `parallel` at a time, until a stop rule applies. (only: run this trial again, and try no other)"""
    under_way: list[Attempt] = []
    while True:
        stop = reached(night, under_way, only)
        while stop is None and len(under_way) < night.spec.parallel:
            coming = next_attempt(night, under_way)
            if coming is None:
                break  # a person, or a trial under way, has to end first
            if isinstance(coming, Stop):
                stop = coming
            else:
                under_way.append(coming)
        if stop and not under_way:
            return stop
        night.wait(under_way)
        for attempt in [one for one in under_way if one.is_idle]:
            steps = attempt.next_steps(night)  # its training seeds, then the rerun or the control that a verdict needs
            for step in steps:
                attempt.add(step, measure(night, step, attempt))
            if not steps:
                settle(night, attempt)
                under_way.remove(attempt)


def next_attempt(night: Night, under_way: list[Attempt]) -> Attempt | Stop | None:
    """The trial to begin: one to run again, the baseline, the inbox's next, one that was approved, or a proposer's."""
    if again := night.rerun_due(under_way):
        return again
    while turn := next_turn(night, under_way):
        asked = quote(turn.checks), quote(turn.proposer), quote(turn.fallback), quote(turn.brief)
        proposed = propose.submit(turn.key, *asked, return_state=False)
        proposal = result_of(proposed)
        if isinstance(proposal, Nothing):
            return turn.without(proposal)
        if not turn.waits_for_approval(proposal):
            return Attempt(night, turn.key, proposal, proposed)
    return None


def measure(night: Terms, step: Step, attempt: Attempt | None = None, bench: Bench | None = None) -> Measurement:
    """Train once and judge the result: in a slot of this machine, or as a run of the deployment `trial`."""
    bench, after = bench or night.bench, [attempt.proposed] if attempt and attempt.proposed else []
    plan, allowance = quote(step.plan), night.allowance(step.plan, bench)
    if night.spec.launch != "here":  # then the tasks below find their results
        request = quote(request_of(night, step, bench))
        after = [launch.submit(step.plan.key, bench, request, night.spec.launch, wait_for=after, return_state=False)]
    if isinstance(step, Control):
        rest = quote(step.trained), allowance, quote(night.reference)
        return Measurement(
            step.plan, control.submit(step.plan.key, bench, plan, *rest, wait_for=after, return_state=False)
        )
    early = night.early_stop(step.plan)
    trained = train.submit(step.plan.key, bench, plan, early, wait_for=after, return_state=False)
    judged = evaluate.submit(step.plan.key, bench, plan, trained, allowance, return_state=False)
    return Measurement(step.plan, trained, judged)


def settle(night: Night, attempt: Attempt) -> None:
    """Decide a trial whose runs are complete, and record it."""
    seen, problem, rule = quote(night.history), quote(night.environment), quote(night.rule)
    runs = [allow_failure(future) for future in attempt.last_tasks]
    verdict = decide(attempt.key, seen, problem, rule, quote(attempt.tried(night)), wait_for=runs, return_state=True)
    night.remember(record(night.ledger, night.history, attempt.trial(night, result_in(verdict))))
