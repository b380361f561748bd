"""What MLflow is told of certificates: points and tags of the campaign's own run, and the words of its note.

A look stands at step look - 1, so that a campaign's only one is drawn as a bar. Gains are positive where the
champion is better, whichever way the metric points; the words (tasks/describe.py) give differences of scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.deciding.certificate import Arm, Certificate, shipped
from tasks.describe import caution, outcome, ships
from tasks.tracking.trial_run import (
    CampaignRecord,
    MetricPoint,
    inert,
    metric_key,
    milliseconds,
    plain,
    point,
)

ARMS: tuple[Arm, ...] = ("champion", "baseline")
WORDS = 1000
"""Characters of what a certificate says: a reason may quote a program."""


def own(campaign: CampaignRecord, certificates: Sequence[Certificate]) -> tuple[Certificate, ...]:
    """The certificates of the campaign's own environment, in the order of the looks."""
    return tuple(one for one in certificates if not one.elsewhere)


def words(certificate: Certificate) -> str:
    """What a certificate says, in a line."""
    return plain(outcome(certificate))[:WORDS]


def proof(campaign: CampaignRecord, certificates: Sequence[Certificate]) -> str:
    """Markdown: what the newest look says, what ships, and what holds elsewhere; empty without a look."""
    looks = own(campaign, certificates)
    lines = [_newest(looks)] if looks else []
    elsewhere = [one for one in certificates if one.elsewhere]
    lines += [f"On {inert(plain(one.environment))}: {inert(words(one))}." for one in elsewhere]
    return "\n\n".join(lines)


def _newest(looks: Sequence[Certificate]) -> str:
    newest = looks[-1]
    verdict = "certified" if newest.passed else "not certified"
    told = inert(words(newest).removeprefix(verdict))
    then = caution(newest) if newest.passed else ships(looks)
    return f"Trial {newest.champion} **{verdict}**{told}; {then}."


def certificate_tags(campaign: CampaignRecord, certificates: Sequence[Certificate]) -> dict[str, str]:
    """Whether the newest look passed, what ships, and in words; nothing before the first look."""
    looks = own(campaign, certificates)
    if not looks:
        return {}
    return {
        "certified": "yes" if looks[-1].passed else "no",
        "shipped": "champion" if shipped(looks) else "baseline",
        "certificate": words(looks[-1]),
    }


def certificate_points(campaign: CampaignRecord, certificates: Sequence[Certificate]) -> list[MetricPoint]:
    """What every look measured, and what it says of other environments."""
    looks = own(campaign, certificates)
    found = [each for one in looks for each in _figures(campaign, one, "certificate")]
    for arm in ARMS:
        found += _runs(campaign, looks, arm)
    for one in certificates:
        if one.elsewhere:
            found += _figures(campaign, one, f"transfer/{one.environment}")
    return found


def ended(campaign: CampaignRecord, certificate: Certificate) -> int:
    """When its last run ended, in milliseconds: part of the identity of what is logged with it."""
    ends = (run.run.started + run.run.wall_seconds for run in certificate.runs if run.run.started > 0)
    return milliseconds(max(ends, default=campaign.created))


def _figures(campaign: CampaignRecord, certificate: Certificate, group: str) -> Iterator[MetricPoint]:
    """A look's comparison; nothing where there was none: of runs of which some crashed, no mean is shown."""
    found = certificate.comparison
    if found is None:
        return
    figures = {"gain": found.gain, "low": found.low, "high": found.high, "p": found.p}
    figures |= {arm: mean for arm in ARMS if (mean := certificate.mean(arm)) is not None}
    for name, value in figures.items():
        key = metric_key(f"{group}/{name}")
        yield from point(key, value, ended(campaign, certificate), certificate.look - 1)


def _runs(campaign: CampaignRecord, looks: Sequence[Certificate], arm: Arm) -> Iterator[MetricPoint]:
    """What each fresh run scored, counted from 1 over all looks."""
    every = [(one, score) for one in looks for score in one.scores(arm)]
    for number, (one, score) in enumerate(every, 1):
        yield from point(f"certificate/{arm}/run", score.value, ended(campaign, one), number)
