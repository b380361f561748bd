"""Results in words: certificates, a campaign's headline, scores, and the changes of a new champion."""

from __future__ import annotations

import math
from collections.abc import Sequence

from environments import Environment
from tasks.numbers import number
from tasks.stats.certificate import Certificate, shipped
from tasks.stats.champion import champion_estimate
from tasks.stats.design import Arm
from tasks.trial import History, Params, Proposal, Trial, Value, baseline, best, measured

UNPROVEN = "nothing is certified yet"
NOT_COUNTED = "the baseline's runs of the search do not count"
ARMS: tuple[Arm, Arm] = ("champion", "baseline")
SELF_REPORTED = "self-reported"
"""Of a budget of steps: a program counts its own steps, and no judge could count them."""


def step_budget(environment: Environment) -> str:
    """The budget of steps, and whose count it is; empty without one."""
    return f"budget_steps = {environment.budget_steps} ({SELF_REPORTED})" if environment.budget_steps else ""


def outcome(certificate: Certificate) -> str:
    """A certificate in a sentence; differences are in the metric's own sign."""
    test, ends = certificate.comparison, interval(certificate)
    also = "".join(f"; {one}" for one in limits(certificate))
    if not certificate.passed or test is None:
        compared = f" ({counts(certificate)})" if test else ""
        return f"not certified, because {certificate.reason}{compared}{also}"
    gain = difference(certificate, test.gain)
    if ends is None or test.low == test.gain:
        return f"certified: {gain} ({counts(certificate)}, without any spread){also}"
    confidence = math.floor(100 * (1 - certificate.level) + 1e-9)  # over all looks
    least = f"{bound(certificate)} with {confidence} % confidence"
    return f"certified: {gain} ({least}; {counts(certificate)}, one-sided p = {test.p:.2g}){also}"


def bound(certificate: Certificate) -> str:
    """The end of the difference's interval that is nearest to no gain; empty without a test."""
    if (ends := interval(certificate)) is None:
        return ""
    reach, end = ("at least", ends[0]) if sign_of(certificate) > 0 else ("at most", ends[1])
    return f"{reach} {end:+.4g}"


def where(certificate: Certificate) -> str:
    """The setting of a certificate's runs."""
    return setting(certificate.environment, certificate.budget)


def setting(environment: str, budget: float) -> str:
    """An environment, and a training budget where it is another."""
    return f"{environment}{'' if budget == 1 else f' at {budget:g}x the budget'}"


def counts(certificate: Certificate) -> str:
    """The runs that were compared, and how many there might have been."""
    arms, reused, planned = [certificate.scores(arm) for arm in ARMS], len(certificate.reused), certificate.planned
    made, used = [len(scores) for scores in arms], [sum(one.value is not None for one in scores) for scores in arms]
    kind = f" + {reused} runs" if reused else " fresh runs"
    most = "" if (made[0], made[1] + reused) == planned else f" of at most {planned[0]} v {planned[1]}"
    crashed = f", and {lost} that crashed" if (lost := sum(made) - sum(used)) else ""
    return f"{used[0]} v {used[1]}{kind}{most}{crashed}"


def interval(certificate: Certificate) -> tuple[float, float] | None:
    """The interval of the difference that belongs to the test, in the metric's own sign; None without a test."""
    bounds = certificate.bounds
    if bounds is None:
        return None
    low, high = sorted(sign_of(certificate) * end for end in bounds)
    return low, high


def limits(certificate: Certificate) -> list[str]:
    """Facts that limit a certificate, one phrase each."""
    times, found = certificate.looked_before, []
    if certificate.same_units:
        found.append("all runs were judged on the same questions, for which alone it holds")
    if times:
        level = f"so this one was tested at {certificate.alpha:.2g}"
        found.append(f"its questions were used {times} time{'s' * (times > 1)} before, {level}")
    if certificate.conditions.left_out:
        found.append(f"without what cannot be tried there: {', '.join(certificate.conditions.left_out)}")
    return found


def caution(certificate: Certificate) -> str:
    """The winner's curse of a certified gain, since an unlucky one would not have passed; empty if it did not pass."""
    test, expected = certificate.comparison, certificate.expected
    if test is None or expected is None:
        return ""
    if difference(certificate, expected) == difference(certificate, test.gain):
        return "it passed so clearly that the estimate need not be lowered for having passed"
    how = "slightly too high" if expected > test.gain / 2 else "too high, and this one passed narrowly"
    return f"estimates that pass a test are on average {how}: expect {difference(certificate, expected)}"


def sign_of(certificate: Certificate) -> int:
    """1 where a larger score is better, -1 where a smaller one is."""
    return 1 if all(fresh.score.higher_is_better for fresh in certificate.runs) else -1


def difference(certificate: Certificate, gain: float) -> str:
    """A gain as a difference of scores with its sign; where less is better it says `better` or `worse`."""
    shown = number(sign_of(certificate) * gain, sign=True)
    return shown if sign_of(certificate) > 0 or shown == "0" else f"{shown}, {'better' if gain > 0 else 'worse'}"


def ships(certificates: Sequence[Certificate]) -> str:
    """The sentence that says what a campaign ships by its certificates."""
    passed = shipped(certificates)
    return f"trial {passed.champion} ships" if passed else "the baseline ships"


def headline(history: History, campaign: str, certificates: Sequence[Certificate] = ()) -> str:
    """The campaign's result so far, in a sentence: means of fresh runs with a certificate, before that the estimate.

    `certificates` are those of the campaign's own environment.
    """
    first, champion, tried = baseline(history), best(history), len([t for t in history if t.number > 0])
    after = f"after {tried} trial{'s' if tried != 1 else ''}"
    if champion is None:
        return f"{campaign}: no score yet {after}" if tried else f"{campaign}: no score yet"
    newest = certificates[-1] if certificates else None
    if newest and (newest.passed or newest.champion == champion.number):
        return f"{campaign}: {_result(newest, certificates)}"
    before = number(mean_of(history, 0)) if first and mean_of(history, 0) is not None else "without a score"
    if champion is first:
        return f"{campaign}: baseline {before} stands {after}" if tried else f"{campaign}: baseline {before}"
    sign, estimate = 1 if champion.score.higher_is_better else -1, champion_estimate(history)
    is_finite = estimate is not None and math.isfinite(estimate.level)
    estimated = sign * estimate.level if estimate and is_finite else mean_of(history, champion.number)
    proof = UNPROVEN
    if shipped(certificates):
        proof = f"trial {champion.number} is not certified yet, and {ships(certificates)}"
    return f"{campaign}: about {number(estimated)} {after}, baseline {before}; {proof}"


def _result(newest: Certificate, certificates: Sequence[Certificate]) -> str:
    mine, theirs, passed = newest.mean("champion"), newest.mean("baseline"), shipped(certificates)
    verdict = "certified" if newest.passed else f"not certified, {ships(certificates)}"
    if passed and passed.champion == newest.champion and not newest.passed:
        verdict = "ships, certified before but not again"
    if mine is None or theirs is None:
        return f"trial {newest.champion} {verdict}: {newest.reason}"
    which = "fresh runs and those of the search" if newest.reused else "fresh runs"
    return f"trial {newest.champion} {verdict}: {number(mine)} against the baseline's {number(theirs)} on {which}"


def mean_of(history: History, trial: int) -> float | None:
    """The mean over all of a trial's training runs that have a score, its reruns included; None without any."""
    values = [score.value for score in measured(history, trial) if score.value is not None]
    return math.fsum(values) / len(values) if values else None


def changes(proposal: Proposal, previous: Trial | None) -> list[str]:
    """What a proposal changes of a trial: the program, and each parameter that differs."""
    edit, params = (previous.proposal.edit, previous.proposal.params) if previous else (None, {})
    return ["edited program"] * (proposal.edit not in (None, edit)) + parameter_changes(proposal.params, params)


def parameter_changes(values: Params, reference: Params) -> list[str]:
    """Every parameter that differs from the reference's: its name, the value there, the value here."""
    return [
        f"{name} {f'{short_value(reference[name])} → ' if name in reference else ''}{short_value(value)}"
        for name, value in values.items()
        if name not in reference or reference[name] != value
    ]


def short_value(value: Value | None) -> str:
    """A parameter's value in at most 14 characters; a dash when it has none."""
    if value is None:
        return "-"
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 14 else f"{text[:7]}…{text[-6:]}"
