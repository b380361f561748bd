"""A trial once more, in its place: another attempt at it, and every later verdict anew, with what is known by then.

Nothing is asked for that is stored: neither a proposal nor a run of another trial. Where a later verdict needs more
than its trial has (a rerun, a control), that is run. Everything is found out before anything in the ledger changes, and
every step on the way is a result that is kept, so this can be killed at any moment and called again.
"""

from __future__ import annotations

from dataclasses import replace

from flows.engine.runner import Bench
from flows.spec.campaign_spec import CampaignSpec
from tasks.decide import weigh
from tasks.deciding.values import JudgedTrial
from tasks.machine.slots import Slots
from tasks.record import resettle
from tasks.store import attempts
from tasks.store.ledger import Ledger
from tasks.system.clock import clock
from tasks.trial import History, Trial, Verdict, Was


def complete(spec: CampaignSpec, ledger: Ledger, slots: Slots, finished: History) -> History:
    """The finished trials, once every attempt that is pending counts; as they are where none is.

    Whoever takes the campaign calls this before anything else.
    """
    pending = attempts.pending(ledger.path)
    if not pending:
        return finished
    first = next(place for place, trial in enumerate(finished) if trial.number in pending)
    now, rerun = finished[:first], (0, 0)
    for trial in finished[first:]:
        bench = Bench(spec, ledger, now, slots, written=finished[:first])
        if trial.number in pending:
            rerun = trial.number, pending[trial.number]
            decided = _again(bench, trial)
        else:
            decided = _anew(bench, trial)
        if decided.verdict.kind != trial.verdict.kind:
            was = Was(trial.verdict.kind, trial.verdict.reason, *rerun)
            decided = replace(decided, was=(*trial.was, was))
        now += (decided,)
    resettle(ledger, finished, now)
    return now


def _again(bench: Bench, trial: Trial) -> Trial:
    """The trial in its current attempt: the same proposal, trained, judged and decided."""
    began = clock()
    tried, verdict = _decided(bench, bench.trial(trial.number, trial.proposal))
    return replace(
        trial,
        attempt=bench.ledger.attempt(trial.number),
        runs=tried.runs,
        score=tried.score,
        verdict=verdict,
        wall_seconds=clock() - began,
        reruns=tried.reruns,
    )


def _anew(bench: Bench, trial: Trial) -> Trial:
    """A later trial with the verdict that it has by now: from its own runs, and what else that takes."""
    known = JudgedTrial(trial.number, trial.proposal, trial.runs, trial.score, trial.reruns)
    tried, verdict = _decided(bench, known)
    more = sum(rerun.run.wall_seconds for rerun in tried.reruns[len(trial.reruns) :])
    wall_seconds = trial.wall_seconds + more
    return replace(trial, verdict=verdict, wall_seconds=wall_seconds, reruns=tried.reruns)


def _decided(bench: Bench, tried: JudgedTrial) -> tuple[JudgedTrial, Verdict]:
    """The verdict, and all that had to be known for it."""
    environment, rule = bench.environment, bench.spec.loaded_rule
    while not isinstance(wanted := weigh(bench.history, environment, rule, tried), Verdict):
        tried = bench.more(tried, wanted)
    return tried, bench.decide(tried)
