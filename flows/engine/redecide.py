"""Rerunning a trial: another attempt at it, after which every later verdict is recomputed.

Stored proposals and runs of other trials are reused. What a recomputed verdict needs in addition (a rerun, an
untrained control) is run. The ledger changes only when everything is known, and every step is a checkpoint, so this
can be killed at any moment and called again.
"""

from __future__ import annotations

from dataclasses import replace

from flows.engine.runner import Runner
from flows.spec.campaign_spec import CampaignSpec
from flows.spending.budget import CampaignBudget
from tasks.decide import weigh
from tasks.deciding.values import JudgedTrial
from tasks.machine.slots import Slots
from tasks.record import resettle
from tasks.spending.spent import slots_usd
from tasks.store import attempts
from tasks.store.ledger import Ledger
from tasks.system.clock import clock
from tasks.trial import History, Trial, Verdict, Was


def check_pending(spec: CampaignSpec, ledger: Ledger, finished: History, money: CampaignBudget) -> None:
    """Refuse pending attempts that could break a limit of the campaign."""
    if pending := attempts.pending(ledger.path):
        known = [finished if number else () for number in pending]
        seconds = sum(spec.machine_time_for_a_trial(ledger.environment, history) for history in known)
        again = ", ".join(str(number) for number in sorted(pending))
        money.check(finished, f"running trial {again} again, which was cut off,", seconds)


def finish_pending(spec: CampaignSpec, ledger: Ledger, slots: Slots, finished: History) -> History:
    """The finished trials, after all pending attempts are run and decided; unchanged if none is pending.

    Called first by every process that takes the campaign, once their cost is checked.
    """
    pending = attempts.pending(ledger.path)
    if not pending:
        return finished
    first = next(place for place, trial in enumerate(finished) if trial.number in pending)
    now, rerun = finished[:first], (0, 0)
    for trial in finished[first:]:
        runner = Runner(spec, ledger, now, slots, written=finished[:first])
        if trial.number in pending:
            rerun = trial.number, pending[trial.number]
        decided = _redecided(runner, trial, again=trial.number in pending)
        if decided.verdict.kind != trial.verdict.kind:
            was = Was(trial.verdict.kind, trial.verdict.reason, *rerun)
            decided = replace(decided, was=(*trial.was, was))
        now += (decided,)
    resettle(ledger, finished, now)
    return now


def _redecided(runner: Runner, trial: Trial, again: bool) -> Trial:
    """The trial with its recomputed verdict; `again`: after another attempt at the same proposal."""
    began = clock()
    if again:
        tried = runner.trial(trial.number, trial.proposal)
    else:
        tried = JudgedTrial(trial.number, trial.proposal, trial.runs, trial.score, trial.reruns)
    while not isinstance(wanted := weigh(runner.history, runner.environment, runner.spec.loaded_rule, tried), Verdict):
        tried = runner.more(tried, wanted)
    verdict = runner.decide(tried)
    if again:
        trial = replace(trial, slots_usd=slots_usd(runner.ledger, trial.number))
    more = sum(rerun.run.wall_seconds for rerun in tried.reruns[len(trial.reruns) :])
    return replace(
        trial, attempt=runner.ledger.attempt(trial.number), runs=tried.runs, score=tried.score, verdict=verdict,
        wall_seconds=clock() - began if again else trial.wall_seconds + more, reruns=tried.reruns,
    )  # fmt: skip
