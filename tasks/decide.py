"""Decide: history and a judged trial -> Verdict. Pure: `weigh` also says what has to be run before there is one.

Here is what holds under every rule: a crash has no score, a guarded metric may not fall, and a champion must have
learned its score. What counts as better is up to the rule (tasks/rules).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prefect import State, task

from environments import Environment
from environments.score import Guard, Score
from tasks.checkpoint import KEPT, ended
from tasks.describe import verdict_of
from tasks.rules import JudgedTrial, NeedsRerun, Rule
from tasks.stats.champion import GUARD_FELL, NOT_LEARNED, reference
from tasks.stats.permutation import pooled, quantile
from tasks.task_key import TaskKey, history_digest
from tasks.trial import NO_CONTROL, History, Verdict, best, measured, measured_each

UNTRAINED_SHARE = 0.5
"""The score without training must stay below this share of the claimed gain."""
SURE = 0.975
"""A fall that equal programs would show more rarely than 1 - SURE counts."""


class NeedsControl:
    """A trial would be kept: its score without training is needed."""


Decision = Verdict | NeedsRerun | NeedsControl


def _key(_: object, given: dict[str, Any]) -> str:
    """A verdict holds for the history, and for the runs that there were: a resumed campaign may have time for more."""
    return f"{given['key']}/decide-{history_digest(given['history'])}-{len(given['tried'].reruns)}"


@task(**KEPT, cache_key_fn=_key)
def decide(key: TaskKey, history: History, environment: Environment, rule: Rule, tried: JudgedTrial) -> State[Verdict]:
    """The verdict on a trial whose runs are complete, given everything decided before it."""
    verdict = weigh(history, environment, rule, tried)
    assert isinstance(verdict, Verdict), f"{verdict} is still wanted"
    return ended(verdict, verdict_of(verdict, tried.score), verdict.reason if verdict.kind == "crash" else None)


def weigh(history: History, environment: Environment, rule: Rule, tried: JudgedTrial) -> Decision:
    if tried.runs[-1].status == "cancelled":
        due = tried.runs[-1].due
        return Verdict("cancelled", due.reason if due else "stopped early")
    if tried.score.value is None:
        return Verdict("crash", tried.score.error or "no score")
    others = tuple(trial for trial in history if trial.number != tried.number)  # not an earlier attempt at it
    return _compare(others, tried, environment, rule)


def _compare(history: History, tried: JudgedTrial, environment: Environment, rule: Rule) -> Decision:
    champion = best(history)
    if champion is None or champion.score.value is None:
        what = "the first trial with a score" if tried.number else "the baseline"
        if lost := len(tried.score.each) - len(tried.score.values):
            what += f"; {lost} of its {len(tried.runs)} runs crashed, which is left out"
        return Verdict("keep", what, "provisional")
    seen: dict[str, float | None] = {"champion": champion.score.value}
    if tried.number == 0:  # run again: what everything is measured against is weighed against nothing
        return Verdict("discard", f"the baseline; trial {champion.number} stays the champion", None, seen)
    if fall := fallen(environment.guards, history, tried.score):
        return Verdict("discard", fall, None, seen | {GUARD_FELL: 1})
    weighed = rule.weigh(history, tried)
    if isinstance(weighed, NeedsRerun):
        return weighed
    if weighed.kind == "discard":
        return replace(weighed, evidence=seen)
    return _kept(history, environment, tried, replace(weighed, level="provisional", evidence=seen))


def fallen(guards: Mapping[str, Guard], history: History, score: Score) -> str | None:
    """Which guarded metric fell by more than noise and its margin; None if none did."""
    if not guards:
        return None
    first, each = reference(history), measured_each(history).values()
    assert first is not None, "there is a champion"
    for name, guard in guards.items():
        had = [score.also[name] for score in measured(history, first.number) if name in score.also]
        now = score.also.get(name)
        if now is None or not had:
            continue
        # Three runs of the baseline may agree by luck; whatever else ran more than once corrects that.
        noise = pooled([one.also[name] for one in runs if name in one.also] for runs in each)
        error = noise.sd * math.sqrt(1 / len(score.values) + 1 / len(had)) if noise else 0.0
        allowed = max(quantile(SURE, noise.df) * error if noise else 0.0, guard.margin)
        before = statistics.fmean(had)
        if guard.loss(now, before) > allowed:
            why = "its margin" if guard.margin >= allowed else "what its noise explains"
            return f"{name} fell from {before:.4g} to {now:.4g}, more than {allowed:.3g} ({why})"
    return None


def _kept(history: History, environment: Environment, tried: JudgedTrial, keep: Verdict) -> Verdict | NeedsControl:
    """The keep, once it is known what the program scores without training."""
    if environment.allow_untrained:
        return keep
    if tried.control is None:
        return NeedsControl()
    seen = keep.evidence | {NOT_LEARNED: tried.control.score.value}
    if reason := _not_learned(history, tried):
        return Verdict("discard", reason, None, seen)
    untold = f"; {NO_CONTROL}" if tried.control.score.error == NO_CONTROL else ""
    return Verdict("keep", keep.reason + untold, keep.level, seen)


def _not_learned(history: History, tried: JudgedTrial) -> str | None:
    """Why the gain is not learned: half of it is there before training, or that is hidden; None if it is learned."""
    first, control, score = reference(history), tried.control, tried.score
    assert first is not None and control is not None, "a control is asked for only when there is a champion"
    allow = "allow_untrained in environment.toml would keep it"
    if control.score.value is None:
        if control.unedited is None or control.unedited.value is None:
            return None
        return (
            "not learned, or hidden: after a hundredth of its time the edited program left nothing to judge, but the "
            f"environment's own program did; {allow}"
        )
    claimed = score.utility - first.score.utility
    without = control.score.utility - first.score.utility
    if without < claimed * UNTRAINED_SHARE:
        return None
    return (
        f"not learned: {control.score.value:.4g} without training and {score.value:.4g} with it, against trial "
        f"{first.number}'s {first.score.value:.4g}; {allow}"
    )
