"""Results in words: certificates, a campaign's headline, scores, and the changes of a new champion."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tasks.deciding.certificate import Certificate, shipped
from tasks.deciding.champion_estimate import champion_estimate
from tasks.deciding.statistics import CONFIDENCE
from tasks.numbers import number
from tasks.trial import History, Trial, Value, baseline, best, measured

UNPROVEN = "nothing is certified yet"


def outcome(certificate: Certificate) -> str:
    """A certificate in a sentence; differences are in the metric's own sign."""
    test, times = certificate.comparison, certificate.looked_before
    plural = "s" * (times is not None and times > 1)
    level = f"so this one was tested at {certificate.alpha:.2g}"
    used = f"; its questions were used {times} time{plural} before, {level}" if times else ""
    if not certificate.passed or test is None:
        return f"not certified, because {certificate.reason}{used}"
    gain = difference(certificate, test.gain)
    counts = f"{len(certificate.scores('champion'))} v {len(certificate.scores('baseline'))} fresh runs"
    if test.df is None:
        return f"certified: {gain} ({counts}, without any spread){used}"
    ends = sorted(sign_of(certificate) * end for end in (test.low, test.high))
    interval = f"{CONFIDENCE * 100:g} % interval {ends[0]:+.4g}..{ends[1]:+.4g}"
    return f"certified: {gain} ({interval}, {counts}, one-sided p = {test.p:.2g}){used}"


def caution(certificate: Certificate) -> str:
    """The winner's curse of a certified gain, since an unlucky one would not have passed; empty if it did not pass."""
    test, expected = certificate.comparison, certificate.expected
    if test is None or expected is None:
        return ""
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
    level = level_of(history)
    estimated = mean_of(history, champion.number) if level is None else level
    return f"{campaign}: about {number(estimated)} {after}, baseline {before}; {UNPROVEN}"


def _result(newest: Certificate, certificates: Sequence[Certificate]) -> str:
    mine, theirs = newest.mean("champion"), newest.mean("baseline")
    verdict = "certified" if newest.passed else f"not certified, {ships(certificates)}"
    if mine is None or theirs is None:
        return f"trial {newest.champion} {verdict}: {newest.reason}"
    return f"trial {newest.champion} {verdict}: {number(mine)} against the baseline's {number(theirs)} on fresh runs"


def mean_of(history: History, trial: int) -> float | None:
    """The mean over all of a trial's training runs that have a score, its reruns included; None without any."""
    values = [score.value for score in measured(history, trial) if score.value is not None]
    return math.fsum(values) / len(values) if values else None


def level_of(history: History) -> float | None:
    """The champion's estimated mean, in the metric's own sign; None without a score, or beyond any number."""
    champion, estimate = best(history), champion_estimate(history)
    if champion is None or estimate is None or not math.isfinite(estimate.level):
        return None
    return estimate.level if champion.score.higher_is_better else -estimate.level


def changes(trial: Trial, previous: Trial | None, most: int = 2) -> list[str]:
    """A new champion's largest changes against the one before it, a short line for each."""
    if previous is None:
        return ["the first with a score"]
    old, new = previous.proposal.params, trial.proposal.params
    changed = sorted((n for n in new if old.get(n) != new[n]), key=lambda n: -_step(old.get(n), new[n]))
    shown = changed if len(changed) <= most + 1 else changed[:most]
    lines = ["edited program"] if trial.proposal.edit else []
    lines += [f"{_short(name, 20)} {short_value(old.get(name))} → {short_value(new[name])}" for name in shown]
    return lines + ([f"and {len(changed) - len(shown)} more"] if len(changed) > len(shown) else [])


def short_value(value: Value | None) -> str:
    """A parameter's value in at most 14 characters; a dash when it has none."""
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else _short(str(value), 14)


def _step(old: Value | None, new: Value) -> float:
    """How large a change is: of numbers the logarithm of their ratio, of anything else 1."""
    if isinstance(old, bool | str | None) or isinstance(new, bool | str) or old * new <= 0:
        return 1.0
    return abs(math.log(abs(new)) - math.log(abs(old)))


def _short(text: str, most: int) -> str:
    """A text with its middle left out where it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"
