"""Results in words: certificates, a campaign's headline, verdicts, and the changes of a new champion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from environments.score import Score
from tasks.numbers import number
from tasks.stats.certificate import Certificate, shipped
from tasks.stats.design import Arm
from tasks.trial import History, Params, Proposal, Value, Verdict, baseline, best, measured

UNPROVEN = "nothing is certified yet"
NOT_COUNTED = "the baseline's runs of the search do not count"
ARMS: tuple[Arm, Arm] = ("champion", "baseline")


def outcome(certificate: Certificate) -> str:
    """A certificate in a sentence, with what limits it; differences are in the metric's own sign."""
    test, times = certificate.comparison, certificate.looked_before
    also = ""
    if certificate.same_units:
        also += "; all runs were judged on the same questions, for which alone it holds"
    if times:
        also += f"; its questions were used before (times: {times}), so this one was tested at {certificate.alpha:.2g}"
    if certificate.conditions.left_out:
        also += f"; without what cannot be tried there: {', '.join(certificate.conditions.left_out)}"
    if not certificate.passed or test is None:
        compared = f" ({_counts(certificate)})" if test else ""
        return f"not certified, because {certificate.reason}{compared}{also}"
    gain = difference(certificate, test.gain)
    if certificate.bounds is None or test.low == test.gain:
        return f"certified: {gain} ({_counts(certificate)}, without any spread){also}"
    confidence = math.floor(100 * (1 - certificate.level) + 1e-9)  # over all looks
    least = f"{bound(certificate)} with {confidence} % confidence"
    return f"certified: {gain} ({least}; {_counts(certificate)}, one-sided p = {test.p:.2g}){also}"


def bound(certificate: Certificate) -> str:
    """The end of the difference's interval that is nearest to no gain; empty without a test."""
    if (ends := interval(certificate)) is None:
        return ""
    reach, end = ("at least", ends[0]) if sign_of(certificate) > 0 else ("at most", ends[1])
    return f"{reach} {end:+.4g}"


def setting(environment: str, budget: float) -> str:
    """An environment, and a training budget where it is another."""
    return f"{environment}{'' if budget == 1 else f' at {budget:g}x the budget'}"


def interval(certificate: Certificate) -> tuple[float, float] | None:
    """The interval of the difference that belongs to the test, in the metric's own sign; None without a test."""
    if certificate.bounds is None:
        return None
    low, high = sorted(sign_of(certificate) * end for end in certificate.bounds)
    return low, high


def caution(certificate: Certificate) -> str:
    """The winner's curse of a certified gain, since an unlucky one would not have passed; empty if it did not pass."""
    test, expected = certificate.comparison, certificate.expected
    if test is None or expected is None:
        return ""
    if difference(certificate, expected) == difference(certificate, test.gain):
        return "it passed so clearly that the estimate need not be lowered for having passed"
    return f"estimates that pass a test are on average too high: expect {difference(certificate, expected)}"


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


def headline(history: History, certificates: Sequence[Certificate] = ()) -> str:
    """The campaign's result so far, in a sentence: means of fresh runs with a certificate of its own environment,
    before that the estimate.
    """
    champion, tried = best(history), len([trial for trial in history if trial.number > 0])
    after = f" after {tried} trial{'s' if tried != 1 else ''}" if tried else ""
    if champion is None:
        return f"no score yet{after}"
    newest = certificates[-1] if certificates else None
    if newest and (newest.passed or newest.champion == champion.number):
        return _result(newest, certificates)
    mean = mean_of(history, 0)
    before = "without a score" if mean is None else number(mean)
    if champion is baseline(history):
        return f"baseline {before}{' stands' if tried else ''}{after}"
    proof = UNPROVEN
    if shipped(certificates):
        proof = f"trial {champion.number} is not certified yet, and {ships(certificates)}"
    return f"about {number(mean_of(history, champion.number))}{after}, baseline {before}; {proof}"


def mean_of(history: History, trial: int) -> float | None:
    """The mean over all of a trial's training runs that have a score, its reruns included; None without any."""
    values = [score.value for score in measured(history, trial) if score.value is not None]
    return math.fsum(values) / len(values) if values else None


def short_value(value: Value | None) -> str:
    """A parameter's value in at most 14 characters; a dash when it has none."""
    if value is None:
        return "-"
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 14 else f"{text[:7]}…{text[-6:]}"


def changes(new: Proposal, old: Proposal | None, shown: Callable[[Value], str] = short_value) -> list[str]:
    """What a proposal changes of another: the program, and each parameter that differs."""
    edit, params = (old.edit, old.params) if old else (None, {})
    program = "edited program" if new.edit else "the baseline's program"
    return [program] * (new.edit != edit) + parameter_changes(new.params, params, shown)


def parameter_changes(values: Params, reference: Params, shown: Callable[[Value], str] = short_value) -> list[str]:
    """Every parameter that differs from the reference's: its name, the value there, the value here."""
    return [
        f"{name} {f'{shown(reference[name])} → ' if name in reference else ''}{shown(value)}"
        for name, value in values.items()
        if name not in reference or reference[name] != value
    ]


def verdict_of(verdict: Verdict, score: Score) -> str:
    """A verdict with its score in a line."""
    shown = "" if score.value is None else f" {score.value:.4g}"
    return f"{verdict.kind}{shown}: {in_short(verdict.reason)}"


def in_short(reason: str) -> str:
    """A reason in a line.

    That of a crash has several: what was seen; the end of the program's log, marked, of which the last line is shown,
    with which a traceback ends; and the remedy in parentheses (tasks/sandbox/advice.py), which may be long.
    """
    seen, *rest = [line.strip() for line in reason.strip().splitlines() if line.strip(" |")] or [""]
    remedy = rest.pop() if rest and rest[-1].startswith("(") and rest[-1].endswith(")") else ""
    shown = (line.removeprefix("|").strip() for line in (seen, *rest[-1:]))
    return f"{': '.join(shown)} {remedy}".rstrip()


def _result(newest: Certificate, certificates: Sequence[Certificate]) -> str:
    mine, theirs, passed = newest.mean("champion"), newest.mean("baseline"), shipped(certificates)
    verdict = "certified" if newest.passed else f"not certified, {ships(certificates)}"
    if passed and passed.champion == newest.champion and not newest.passed:
        verdict = "ships, certified before but not again"
    if mine is None or theirs is None:
        return f"trial {newest.champion} {verdict}: {newest.reason}"
    which = "fresh runs and those of the search" if newest.reused else "fresh runs"
    return f"trial {newest.champion} {verdict}: {number(mine)} against the baseline's {number(theirs)} on {which}"


def _counts(certificate: Certificate) -> str:
    """The runs that were compared, and how many there might have been."""
    mine, theirs = ([score.value is not None for score in certificate.scores(arm)] for arm in ARMS)
    reused = len(certificate.reused)
    kind = f" + {reused} runs" if reused else " fresh runs"
    planned = certificate.design.groups[-1]
    most = "" if (len(mine), len(theirs) + reused) == planned else f" of at most {planned[0]} v {planned[1]}"
    lost = (*mine, *theirs).count(False)
    crashed = f", and {lost} that crashed" if lost else ""
    return f"{sum(mine)} v {sum(theirs)}{kind}{most}{crashed}"
