"""The campaign: one night. Propose, train, evaluate, decide, record, until a guard fires.

Every step is a task whose result is a file below the campaign's directory (tasks/checkpoint.py), so this function
can be killed at any moment and called again: what was finished comes back from its file, what was in flight is
done again. Nothing is remembered but `history`.
"""

from __future__ import annotations

from prefect import State, flow, runtime
from prefect.states import Completed, Failed

from flows import guards
from flows.naming import campaign_name, flow_run_name, tag
from flows.parameters import Environment, Hours, Name, Proposer, Seed, Tracking, Trials, Until
from flows.recovery import crash_the_dead
from flows.showcase import Showcase
from flows.spec import Advanced, CampaignSpec
from tasks import interrupt
from tasks.checkpoint import kept, whole
from tasks.clock import clock
from tasks.decide import decide
from tasks.evaluate import evaluate
from tasks.ledger import Ledger
from tasks.life import Life
from tasks.outbox import Outbox
from tasks.plausible import believed
from tasks.propose import load, propose
from tasks.record import reconcile, record
from tasks.train import train
from tasks.trial import History, Trial
from tasks.untrained import is_due, untrained

CHUNK = 250
"""Finished trials that one life replays, at most; those of earlier chunks are read from their files alone."""


@flow(
    name="campaign",
    flow_run_name=flow_run_name,
    on_running=[tag],
    persist_result=True,
    result_serializer="json",
)
def campaign(
    environment: Environment = "lunar_lander",
    name: Name = None,
    proposer: Proposer = "tpe",
    trials: Trials = 20,
    hours: Hours = 8.0,
    until: Until = None,
    seed: Seed = None,
    tracking: Tracking = None,
    advanced: Advanced = Advanced(),
) -> State[str]:
    """Improve an environment's program for a night: propose, train, evaluate, decide, until a guard fires."""
    spec = CampaignSpec.of(
        environment=environment, name=campaign_name(name, environment), proposer=proposer, trials=trials,
        hours=hours, until=until, seed=seed, tracking=tracking, advanced=advanced,
    )  # fmt: skip
    spec.check()
    ledger, run = spec.open(), runtime.flow_run
    with Life(ledger, flow_run_id=run.id, page=run.ui_url) as life:
        spec.store(ledger)
        crash_the_dead(ledger, run.id)
        finished = reconcile(ledger)
        outbox = Outbox(ledger, spec.tracking, run.id, finished)
        history = finished[: len(finished) // CHUNK * CHUNK]
        with Showcase(ledger, run.id) as showcase:
            showcase.show(finished)
            while True:
                interrupt.check()
                stop = None
                if len(history) >= len(finished):  # until then finished trials are replayed, guards or not
                    stop = guards.stop(spec, ledger.environment, history, life.spent, life.asked_to_stop)
                if stop or not (trial := one_trial(spec, ledger, outbox, history)):
                    break
                history += (trial,)
                showcase.show(history)
        stop = stop or guards.NOTHING_LEFT
        outbox.close(stop.state)  # takes the last picture along
        ledger.event("end", state=stop.state, reason=stop.reason)
    message = f"{spec.name}: {stop.reason}"
    return Failed(message=message) if stop.state == "failed" else Completed(message=message, data=spec.name)


def one_trial(spec: CampaignSpec, ledger: Ledger, outbox: Outbox, history: History) -> Trial | None:
    """The next trial, from its proposal to its record; None when there is nothing left to propose."""
    began, number, results = clock(), len(history), ledger.results
    at, place, walls = ledger.at(number), ledger.place(number), spec.isolation
    problem, known = whole(ledger.environment), whole(history)
    proposer = whole(load(spec.proposer, spec.advanced.options))
    proposal = kept(propose, results)(at, problem, proposer, place, known, ledger.seed("propose", at))
    if proposal is None:
        return None
    begin = ledger.program, place, proposal
    run = kept(train, results)(at, problem, walls, *begin, ledger.seed("train", at))
    run = believed(ledger.environment, history, proposal, run, ledger.path)
    fresh = not place.trial.is_file()
    if fresh:
        ledger.verify()  # what judges is what was frozen
    score = kept(evaluate, results)(at, problem, walls, place, run, ledger.seed("search", at))
    control = None
    if fresh and is_due(ledger.environment, history, score):
        control = kept(untrained, results)(at, problem, walls, *begin, run, ledger.seed("control", at))
        ledger.verify()
    verdict = kept(decide, results)(at, known, run, score, control)
    trial = Trial(number, at.attempt, len(history), proposal, (run,), score, verdict, clock() - began)
    return record(at, ledger, outbox, known, whole(trial))
