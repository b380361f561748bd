"""The campaign: one night. Propose, train, evaluate, decide, record, until a guard fires.

Every step is a task whose result is a file below the campaign's directory (tasks/checkpoint.py), so this function
can be killed at any moment and called again: what was finished comes back from its file, what was in flight is
done again. Nothing is remembered but `history`.
"""

from __future__ import annotations

from prefect import State, flow, runtime
from prefect.states import Completed, Failed

from flows import guards
from flows.naming import campaign_name, flow_run_name
from flows.recovery import crash_the_dead
from flows.spec import Advanced, CampaignSpec
from tasks import interrupt
from tasks.checkpoint import kept, whole
from tasks.decide import decide
from tasks.evaluate import evaluate
from tasks.ledger import Ledger
from tasks.life import Life
from tasks.outbox import Outbox
from tasks.propose import load, propose
from tasks.record import reconcile, record
from tasks.sandbox import clock
from tasks.train import train
from tasks.trial import History, Trial

CHUNK = 250
"""Finished trials that one life replays, at most; those of earlier chunks are read from their files alone."""


@flow(name="campaign", flow_run_name=flow_run_name, persist_result=True, result_serializer="json")
def campaign(
    environment: str = "cartpole",
    name: str | None = None,
    proposer: str = "random_search",
    trials: int = 20,
    hours: float = 8.0,
    until: str | None = None,
    seed: int | None = None,
    tracking: str | None = None,
    advanced: Advanced = Advanced(),
) -> State[str]:
    """Improve an environment's program for a night.

    Args:
        environment: A bundled environment's name, or the path of a folder with an environment.toml.
        name: Identifies the campaign; an unfinished one of that name goes on. Left out, a new name is made.
        proposer: Decides what to try next: a file of tasks/proposers.
        trials: Stop after so many trials, the baseline not counted.
        hours: Stop so that everything ends within so many hours, summed over all lives.
        until: Stop so that everything ends by then: a time of day such as 07:30, or an ISO date and time.
        seed: Every draw comes from it; drawn at random when left out.
        tracking: Where MLflow is (a URI), or off. Left out: the saved block, MLFLOW_TRACKING_URI, or a local file.
        advanced: What few campaigns change.
    """
    spec = CampaignSpec.of(
        environment=environment, name=campaign_name(name, environment), proposer=proposer, trials=trials,
        hours=hours, until=until, seed=seed, tracking=tracking, advanced=advanced,
    )  # fmt: skip
    spec.check()
    ledger = spec.open()
    with Life(ledger, flow_run_id=runtime.flow_run.id, page=runtime.flow_run.ui_url) as life:
        spec.store(ledger)
        crash_the_dead(ledger, runtime.flow_run.id)
        finished = reconcile(ledger)
        outbox = Outbox(ledger, spec.tracking, runtime.flow_run.id, finished)
        history = finished[: len(finished) // CHUNK * CHUNK]
        while True:
            interrupt.check()
            stop = None
            if len(history) >= len(finished):  # what was finished is replayed, whatever the guards say now
                stop = guards.stop(spec, ledger.environment, history, life.spent, life.asked_to_stop)
            if stop or not (trial := one_trial(spec, ledger, outbox, history)):
                break
            history += (trial,)
        stop = stop or guards.NOTHING_LEFT
        outbox.close(stop.state)
        ledger.event("end", state=stop.state, reason=stop.reason)
    message = f"{spec.name}: {stop.reason}"
    return Failed(message=message) if stop.state == "failed" else Completed(message=message, data=spec.name)


def one_trial(spec: CampaignSpec, ledger: Ledger, outbox: Outbox, history: History) -> Trial | None:
    """The next trial, from its proposal to its record; None when there is nothing left to propose."""
    began, number, results = clock(), len(history), ledger.results
    at, place, problem, known = (
        ledger.at(number),
        ledger.place(number),
        whole(ledger.environment),
        whole(history),
    )
    proposer = whole(load(spec.proposer, spec.advanced.options))
    proposal = kept(propose, results)(at, problem, proposer, place, known, ledger.seed("propose", at))
    if proposal is None:
        return None
    run = kept(train, results)(at, problem, ledger.program, place, proposal, ledger.seed("train", at))
    score = kept(evaluate, results)(at, problem, place, run, ledger.seed("search", at))
    verdict = kept(decide, results)(at, known, run, score)
    trial = Trial(number, at.attempt, len(history), proposal, (run,), score, verdict, clock() - began)
    return record(at, ledger, outbox, known, whole(trial))
