"""Decide: history and a judged trial -> Verdict. Pure.

Here is what holds under every rule: a crash has no score, a guarded metric may not fall, a champion must have learned
its score and may not report another, a simpler program may stay although it is not better, and scores compare within
one budget. What counts as better is up to the rule (tasks/rules).
"""

from __future__ import annotations

from prefect import State, task

from environments import Environment
from tasks import task_messages
from tasks.checkpoint import RETRIES, RETRY_SECONDS, ended, machine_failed, run_name
from tasks.deciding.champion_estimate import GUARD_FELL, MISREPORTED, champion_estimate, reference, utility
from tasks.deciding.false_report import contradicted
from tasks.deciding.guards import fallen
from tasks.deciding.simplicity import is_simpler, kept_in_a_row
from tasks.deciding.values import JudgedTrial, NeedsRerun, RuleAnswer
from tasks.rules import Rule
from tasks.task_key import TaskKey, history_digest
from tasks.trial import NO_CONTROL, History, Trial, Verdict, best

UNTRAINED_SHARE = 0.5
"""The score without training must stay below this share of the claimed gain."""
SIMPLER_SDS = 0.5
"""A simpler program may score this far below the champion's mean, in standard deviations between runs."""
SIMPLER_KEEPS = 3
"""After this many keeps in a row for being simpler, the champion is rerun: each may have lost a little."""


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
    return ended(verdict, task_messages.of_verdict(verdict, tried.score))


def weigh(history: History, environment: Environment, rule: Rule, tried: JudgedTrial) -> Decision:
    """The verdict, or the run that it needs first."""
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
    if fall := fallen(environment.guards, history, tried):
        return Verdict("discard", fall, None, seen | {GUARD_FELL: 1})
    weighed = rule.weigh(history, tried)
    if isinstance(weighed, NeedsRerun):
        return weighed
    seen |= weighed.evidence
    if weighed.better:
        return _kept(history, environment, tried, Verdict("keep", weighed.words, weighed.level, seen))
    return _simpler(history, environment, champion, tried, weighed, seen)


def _kept(history: History, environment: Environment, tried: JudgedTrial, keep: Verdict) -> Verdict | NeedsControl:
    if reason := contradicted(history, tried):
        return Verdict("discard", reason, None, keep.evidence | {MISREPORTED: tried.runs[-1].reported})
    if environment.allow_untrained:
        return keep
    if tried.control is None:
        return NeedsControl()
    seen = keep.evidence | {"untrained": tried.control.score.value}
    if tried.control.unedited:
        seen["unedited"] = tried.control.unedited.value
    if reason := _not_learned(history, tried):
        return Verdict("discard", reason, None, seen)
    untold = f"; {NO_CONTROL}" if tried.control.score.error == NO_CONTROL else ""
    return Verdict("keep", keep.reason + untold, keep.level, seen, keep.simpler)


def _simpler(
    history: History, environment: Environment, champion: Trial, tried: JudgedTrial, weighed: RuleAnswer,
    seen: dict[str, float | int | None],
) -> Decision:  # fmt: skip
    discard = Verdict("discard", weighed.words, None, seen)
    if not is_simpler(history, tried.proposal, champion) or (level := champion_estimate(history)) is None:
        return discard
    known = utility(history, champion.number)
    fresh = tuple(rerun.score.utility for rerun in tried.again(champion.number))
    mean = sum(known + fresh) / len(known + fresh)
    if tried.score.utility < mean - SIMPLER_SDS * level.sd or _is_dominated(history, tried):
        return discard
    if kept_in_a_row(history) >= SIMPLER_KEEPS and not fresh:
        if any(rerun.of == champion.number for rerun in tried.reruns):
            return discard  # the champion's rerun crashed
        return NeedsRerun(champion.number)
    words = f"simpler, and within {SIMPLER_SDS:g} run sd of trial {champion.number}'s mean; {weighed.words}"
    return _kept(history, environment, tried, Verdict("keep", words, weighed.level, seen, simpler=True))


def _is_dominated(history: History, tried: JudgedTrial) -> bool:
    """Whether the baseline scores no less, and is no less simple."""
    first = reference(history)
    assert first is not None, "a champion estimate begins with it"
    before = utility(history, first.number)
    return tried.score.utility <= sum(before) / len(before) and not is_simpler(history, tried.proposal, first)


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
