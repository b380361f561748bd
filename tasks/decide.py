"""Decide: history and a judged trial -> Verdict. Pure: `weigh` also says what has to be run before there is one.

Here is what holds under every rule: a crash has no score, a guarded metric may not fall, and a champion must have
learned its score. What counts as better is up to the rule (tasks/rules).
"""

from __future__ import annotations

from dataclasses import replace

from prefect import State, task

from environments import Environment
from tasks.checkpoint import RETRIES, RETRY_SECONDS, ended, machine_failed, run_name
from tasks.describe import verdict_of
from tasks.rules import JudgedTrial, NeedsRerun, Rule
from tasks.stats.champion import GUARD_FELL, NOT_LEARNED, reference
from tasks.stats.guards import fallen
from tasks.task_key import TaskKey, history_digest
from tasks.trial import NO_CONTROL, History, Verdict, best

UNTRAINED_SHARE = 0.5
"""The score without training must stay below this share of the claimed gain."""


class NeedsControl:
    """A trial would be kept: its score without training is needed."""


Decision = Verdict | NeedsRerun | NeedsControl


@task(
    task_run_name=run_name, retries=RETRIES, retry_delay_seconds=RETRY_SECONDS, retry_condition_fn=machine_failed,
    persist_result=True, result_serializer="json",
    cache_key_fn=lambda _, given: f"{given['key']}/decide-{history_digest(given['history'])}",
)  # fmt: skip
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
        return Verdict("keep", what, "provisional", {"score": tried.score.value})
    seen: dict[str, float | int | None] = {
        "score": tried.score.value,
        "champion": champion.score.value,
        "champion_trial": champion.number,
    }
    if tried.number == 0:  # run again: what everything is measured against is weighed against nothing
        return Verdict("discard", f"the baseline; trial {champion.number} stays the champion", None, seen)
    if fall := fallen(environment.guards, history, tried.score):
        return Verdict("discard", fall, None, seen | {GUARD_FELL: 1})
    weighed = rule.weigh(history, tried)
    if isinstance(weighed, NeedsRerun):
        return weighed
    seen |= weighed.evidence
    if weighed.kind == "discard":
        return replace(weighed, evidence=seen)
    return _kept(history, environment, tried, replace(weighed, level="provisional", evidence=seen))


def _kept(history: History, environment: Environment, tried: JudgedTrial, keep: Verdict) -> Verdict | NeedsControl:
    """The keep, once it is known what the program scores without training."""
    if environment.allow_untrained:
        return keep
    if tried.control is None:
        return NeedsControl()
    seen = keep.evidence | {NOT_LEARNED: tried.control.score.value}
    if tried.control.unedited:
        seen["unedited"] = tried.control.unedited.value
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
