"""The campaign: propose, train, evaluate, decide, record, until a stop rule applies; then certify the champion.

Each task keeps its result as a file, so this can be killed at any moment and called again (tasks/checkpoint.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import State, allow_failure, flow
from prefect.utilities.annotations import quote  # Prefect passes it on as it is

from flows.engine.attempt import Attempt, Future, Measurement
from flows.engine.certifying import certify_at_the_end
from flows.engine.launching import launched
from flows.engine.night import Night, opened
from flows.engine.proposing import next_attempt
from flows.engine.stopping import Stop, reached
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.flow import fails_when_refused, flow_run_name, form, named
from tasks.bench import Bench, RunPlan
from tasks.checkpoint import result_in
from tasks.control import control
from tasks.decide import decide
from tasks.evaluate import evaluate
from tasks.propose import propose
from tasks.record import record
from tasks.train import train


@form  # its parameters are the options of flows/spec/spec.py
@flow(flow_run_name=flow_run_name, validate_parameters=False)  # CampaignSpec says what is wrong
@fails_when_refused
def campaign(environment: str, name: str | None = None, **options: Any) -> State[str]:
    """Improve an environment's program overnight: propose, train, evaluate, decide, and certify the champion."""
    spec = CampaignSpec.of(environment=environment, **named(environment, name, options))
    with opened(spec) as night:
        night.ending = certify_at_the_end(night, search(night), measure)
    return night.state


def search(night: Night, only: int | None = None) -> Stop:
    """Try proposals, `parallel` at a time, until a stop rule applies. (only: run this trial again, and try no other)"""
    under_way: list[Attempt] = []
    while True:
        stop = reached(night, under_way, only)
        while not stop and len(under_way) < night.spec.parallel and (coming := next_attempt(night, under_way, ask)):
            if isinstance(coming, Attempt):
                under_way.append(coming)
                stop = reached(night, under_way, only)
            else:
                stop = coming
        if stop and not under_way:
            return stop
        for attempt in night.ended(under_way):
            plans = attempt.next_runs()  # its training seeds, then the rerun or the control that a verdict needs
            attempt.made += [measure(night, plan, after=attempt.proposed) for plan in plans]
            if not plans:
                settle(night, attempt)
                under_way.remove(attempt)


def ask(*arguments: object) -> Future:
    """Propose the parameters or the edit of a trial."""
    return propose.submit(*map(quote, arguments), return_state=False)


def measure(night: Night, plan: RunPlan, bench: Bench | None = None, after: Sequence[Future] = ()) -> Measurement:
    """Train once and judge the result: in a slot of this machine, or as a run of the deployment `trial`."""
    bench, launch = bench or night.bench, None
    if night.spec.launch != "here":  # another machine makes the run, and the tasks below find its results
        launch = launched(night, plan, bench, after)
        after = [launch]
    shared, need = (quote(plan.key), bench, quote(plan)), night.need(plan, bench)
    if plan.control_of:
        score = control.submit(*shared, need, quote(night.reference), wait_for=after, return_state=False)
        return night.follow(Measurement(bench, plan, score, launch=launch))
    run = train.submit(*shared, night.early_stop(plan), wait_for=after, return_state=False)
    judged = evaluate.submit(*shared, allow_failure(run), need, return_state=False)
    return night.follow(Measurement(bench, plan, run, judged, launch))


def settle(night: Night, attempt: Attempt) -> None:
    """Decide a trial whose runs are complete, and record it."""
    tasks = [allow_failure(one.last_task) for one in attempt.made]  # whether their programs crashed or not
    verdict = decide(*map(quote, attempt.evidence), wait_for=tasks, return_state=True)
    night.remember(record(night.ledger, night.history, attempt.trial(result_in(verdict))))
