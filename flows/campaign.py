"""The campaign: one night. Propose, train, evaluate, decide, record, until a guard fires; then prove what was found.

Every step is a task whose result is a file below the campaign's directory (tasks/checkpoint.py), so this function
can be killed at any moment and called again: what was finished comes back from its file, what was in flight is
done again. Nothing is remembered but `history`.
"""

from __future__ import annotations

from prefect import State, flow, runtime
from prefect.states import Completed, Failed

from flows import certify, guards
from flows.advanced import Advanced
from flows.bench import Bench
from flows.naming import campaign_name, flow_run_name, tag
from flows.parameters import (
    Cancel,
    Environment,
    Hours,
    Name,
    Proposer,
    Replicates,
    Rule,
    Seed,
    Tracking,
    Trials,
    Until,
)
from flows.proposing import WAITS, next_trial
from flows.recovery import crash_the_dead
from flows.showcase import Showcase
from flows.spec import CampaignSpec
from tasks import interrupt
from tasks.checkpoint import whole
from tasks.clock import clock
from tasks.decide import weigh
from tasks.ledger import Ledger
from tasks.life import Life
from tasks.outbox import Outbox
from tasks.proposers import Left
from tasks.record import reconcile, record
from tasks.trial import History, Proposal, Trial, Verdict

LOOK_SECONDS = 2.0
"""Between two looks at whether a person has answered."""
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
    rule: Rule = "certify",
    cancel: Cancel = "curve",
    replicates: Replicates = 1,
    trials: Trials = 20,
    hours: Hours = 8.0,
    until: Until = None,
    seed: Seed = None,
    tracking: Tracking = None,
    advanced: Advanced = Advanced(),
) -> State[str]:
    """Improve an environment's program for a night: propose, train, evaluate, decide, until a guard fires."""
    spec = CampaignSpec.of(
        environment=environment, name=campaign_name(name, environment), proposer=proposer, rule=rule,
        cancel=cancel, replicates=replicates, trials=trials, hours=hours, until=until, seed=seed, tracking=tracking,
        advanced=advanced,
    )  # fmt: skip
    spec.check()
    spec.loaded_proposer.preflight(Left(usd=spec.advanced.max_usd, tokens=spec.advanced.max_tokens))
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
                coming = stop or next_trial(spec, ledger, finished, history, life.spent)
                if isinstance(coming, guards.Stop):
                    stop = coming
                    break
                if coming == WAITS:
                    interrupt.wait(LOOK_SECONDS)
                    continue
                history += (one_trial(spec, ledger, outbox, history, *coming),)
                showcase.show(history)
            bench = Bench(spec, ledger, history)
            if stop.state == "finished":
                stop = stop if certify.at_the_end(bench) else guards.ASKED
                showcase.show(history)
        outbox.close(stop.state)  # takes the certificate and the last picture along
        ledger.event("end", state=stop.state, reason=stop.reason)
    message = f"{spec.name}: {stop.reason}"
    return Failed(message=message) if stop.state == "failed" else Completed(message=message, data=spec.name)


def one_trial(
    spec: CampaignSpec, ledger: Ledger, outbox: Outbox, history: History, number: int, proposal: Proposal
) -> Trial:
    """A trial from its proposal to its record."""
    began, bench = clock(), Bench(spec, ledger, history)
    tried = bench.trial(number, proposal)
    while not isinstance(wanted := weigh(history, ledger.environment, spec.loaded_rule, tried), Verdict):
        tried = bench.more(tried, wanted)
    verdict = bench.decide(tried)
    at = ledger.at(tried.number)
    took = clock() - began
    trial = Trial(
        tried.number, at.attempt, len(history), proposal, tried.runs, tried.score, verdict, took, tried.reruns
    )
    return record(at, ledger, outbox, whole(history), whole(trial))
