"""Stopping criteria: trials, hours, deadline, money, patience, crashes and disk space."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments import Environment
from flows.spec.campaign_spec import CampaignSpec, besides_training
from flows.status import CampaignEnd
from tasks.describe import in_short
from tasks.sandbox.outputs import DISK_RESERVE
from tasks.sandbox.program import MIB
from tasks.store import campaign_lock
from tasks.store.ledger import ended_search
from tasks.trial import History, Trial, baseline, best, budgets_used

if TYPE_CHECKING:
    from flows.engine.attempt import Attempt
    from flows.engine.night import Night

ROUNDING = 1e-6
ROOM = 2 * DISK_RESERVE
"""Free bytes needed to start a trial: the reserve, and as much again for the trial."""
CRASH_WINDOW = 10
CRASH_MINIMUM = 5

Stop = CampaignEnd
ASKED = Stop("stopped", "asked to stop; `nightshift resume` goes on")
NOTHING_LEFT = Stop("finished", "the proposer has nothing left to try")


def reached(night: Night, under_way: Sequence[Attempt], only: int | None = None) -> Stop | None:
    """Why no trial may follow those under way; None if one may. (only: the one trial that is run again)"""
    spec, ledger, history = night.spec, night.ledger, night.history
    if night.pause or campaign_lock.asked_to_stop(night.ledger):
        return ASKED
    if ledger.pending_attempts().keys() - {one.number for one in under_way}:
        return full(ledger.path)
    budgets = len([one for one in under_way if one.number])
    found = stop(spec, ledger.environment, history, campaign_lock.spent(night.ledger), budgets)
    if found is None and (shortage := night.money.shortage(history, len(under_way))):
        # Where a price is unknown, what is reserved for the certificate cannot be relied on either.
        found = Stop("stopped" if night.money.spent(history).usd is None else "finished", shortage)
    if found is None or (found.state == "finished" and night.rule.certifies):
        found = full(ledger.path) or found  # for a trial, or for the runs of a certificate
    if only is None or (found and found.state == "failed"):
        return found
    return as_before(night, ended_search(ledger), "a trial was run again before the others were done")


def as_before(night: Night, before: Mapping[str, Any], otherwise: str) -> Stop:
    """How a campaign ends that has done something after its search: as that had ended, by its event `before`."""
    if before.get("state") in ("finished", "stopped"):
        return Stop(before["state"], before["reason"])
    due = stop(night.spec, night.environment, night.history, campaign_lock.spent(night.ledger))
    return due or Stop("stopped", otherwise)


def stop(
    spec: CampaignSpec, environment: Environment, history: History, spent: float, under_way: float = 0.0
) -> Stop | None:
    """The first stopping criterion that applies; None to continue.

    Args:
        spent: Seconds, summed over all processes of the campaign.
        under_way: Trials that are started and not decided, in whole budgets; the baseline is none of them.
    """
    first, patience = baseline(history), spec.advanced.patience
    if first and first.verdict.kind == "crash":
        return Stop("failed", _crashed(spec, first))
    if crashes := _too_many_crashes(spec, history):
        return crashes
    if spec.trials - budgets_used(history) - under_way < 1 - ROUNDING:
        many = len([trial for trial in history if trial.number > 0])
        return Stop("finished", f"all {many} trials done" if many > 1 else "1 trial done")
    champion = best(history)
    since = len([trial for trial in history if champion is None or trial.order > champion.order])
    if patience and since > patience - ROUNDING:
        return Stop("finished", f"nothing better in the last {f'{patience} trials' if patience > 1 else 'trial'}")
    late = spec.too_late(environment, history, spent, spec.time_for_a_trial(environment, history))
    return Stop("finished", f"no time for another trial{late}") if late else None


def rerun_fits(night: Night) -> bool:
    """Whether there is time and money for one more run of a trial, besides the certificate and the trials beside it."""
    environment, history = night.environment, night.history
    a_run = environment.budget_seconds + besides_training(environment, history)
    late = night.spec.too_late(environment, history, campaign_lock.spent(night.ledger), a_run)
    return not late and not night.money.shortage(history, night.spec.parallel - 1)


def full(path: Path) -> Stop | None:
    """The end of a campaign whose disk has no room for another run; None if there is room."""
    if (free := shutil.disk_usage(path).free) >= ROOM:
        return None
    has = f"the disk of {path} has {free // MIB} MiB left, and a trial needs {ROOM // MIB}"
    return Stop("stopped", f"{has}: free some (`nightshift prune`), then `nightshift resume`")


def _crashed(spec: CampaignSpec, first: Trial) -> str:
    """That there is nothing to compare with, why, and what to do."""
    why, once = in_short(first.score.error or "no score"), f"nightshift try {shlex.quote(spec.environment)}"
    return (
        f"the baseline crashed, so there is nothing to compare with: {why}. If its program is at fault, correct it "
        f"(`{once}` runs it once) and begin a new campaign; if this machine was: "
        f"`nightshift rerun {spec.name} 0`, then `nightshift resume {spec.name}`"
    )


def _too_many_crashes(spec: CampaignSpec, history: History) -> Stop | None:
    recent = history[-CRASH_WINDOW:]
    crashed = sum(trial.verdict.kind == "crash" for trial in recent)
    if len(recent) < CRASH_MINIMUM or crashed / len(recent) <= spec.advanced.crash_share:
        return None
    newest = max(trial.number for trial in recent if trial.verdict.kind == "crash")
    return Stop(
        "failed",
        f"{crashed} of the last {len(recent)} trials crashed: `nightshift logs {spec.name} {newest}` shows the newest; "
        f"`nightshift resume {spec.name} --crash-share 1` goes on all the same",
    )
