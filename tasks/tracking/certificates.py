"""Certificates in MLflow: metrics and tags of the campaign's run, and sentences of its note.

Analysis n is logged at step n - 1, so that a single one is drawn as a bar. Gains are positive if the champion is
better, whichever way the metric points; the sentences (tasks/describe.py) give differences of scores.

To show another field of a certificate: `_figures` for a metric, flows/views/certificate_page.py for the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.certifying.aggregate import aggregates
from tasks.certifying.certificate import Certificate, shipped
from tasks.certifying.group_design import Arm
from tasks.certifying.transfer import budget_name
from tasks.describe import ARMS, caution, outcome, over_environments, ships, where
from tasks.tracking.trial_run import CampaignRecord, MetricPoint, inert, metric_key, milliseconds, plain, point

WORDS = 1000
"""Characters of a certificate's sentence: a reason may quote a program."""


def own(campaign: CampaignRecord, certificates: Sequence[Certificate]) -> tuple[Certificate, ...]:
    """The certificates of the campaign's own environment, in order."""
    return tuple(one for one in certificates if not one.elsewhere)


def words(certificate: Certificate) -> str:
    return plain(outcome(certificate))[:WORDS]


def proof(campaign: CampaignRecord, certificates: Sequence[Certificate]) -> str:
    """The newest certificate, what ships, and transfer results, in Markdown; empty without a certificate."""
    looks = own(campaign, certificates)
    lines = [_newest(looks)] if looks else []
    elsewhere = [one for one in certificates if one.elsewhere]
    lines += [f"On {inert(plain(where(one)))}: {inert(words(one))}." for one in elsewhere]
    lines += [f"{inert(plain(over_environments(one)))}." for one in aggregates(certificates)]
    return "\n\n".join(lines)


def _newest(looks: Sequence[Certificate]) -> str:
    newest = looks[-1]
    verdict = "certified" if newest.passed else "not certified"
    told = inert(words(newest).removeprefix(verdict))
    then = caution(newest) if newest.passed else ships(looks)
    return f"Trial {newest.champion} **{verdict}**{told}; {then}."


def certificate_tags(campaign: CampaignRecord, certificates: Sequence[Certificate]) -> dict[str, str]:
    """Tags of the newest certificate; none without one."""
    looks = own(campaign, certificates)
    if not looks:
        return {}
    return {
        "certified": "yes" if looks[-1].passed else "no",
        "shipped": "champion" if shipped(looks) else "baseline",
        "certificate": words(looks[-1]),
    }


def certificate_points(campaign: CampaignRecord, certificates: Sequence[Certificate]) -> list[MetricPoint]:
    """Metrics of every certificate, those of other environments included."""
    looks = own(campaign, certificates)
    found = [each for one in looks for each in _figures(campaign, one, "certificate")]
    for arm in ARMS:
        found += _runs(campaign, looks, arm)
    for one in certificates:
        if one.elsewhere:
            found += _figures(campaign, one, f"transfer{one.conditions.name}/{one.environment}")
    for each in aggregates(certificates):
        if each.gain is not None:
            moment = max(ended(campaign, one) for one in certificates)
            values = {"gain": each.gain.value, "low": each.gain.low, "high": each.gain.high}
            for name, value in values.items():
                found += point(metric_key(f"aggregate{budget_name(each.budget)}/{name}"), value, moment)
    return found


def ended(campaign: CampaignRecord, certificate: Certificate) -> int:
    """When its last run ended, in milliseconds, which is part of the identity of what is logged with it."""
    ends = (run.run.started + run.run.wall_seconds for run in certificate.runs if run.run.started > 0)
    return milliseconds(max(ends, default=campaign.created))


def _figures(campaign: CampaignRecord, certificate: Certificate, group: str) -> Iterator[MetricPoint]:
    """The comparison of a certificate; nothing without one: if runs crashed, no mean is shown."""
    found = certificate.comparison
    if found is None:
        return
    figures = {"gain": found.gain, "p": found.p}
    if certificate.bounds is not None:
        figures |= {"low": certificate.bounds[0], "high": certificate.bounds[1]}
    figures |= {arm: mean for arm in ARMS if (mean := certificate.mean(arm)) is not None}
    for name, value in figures.items():
        key = metric_key(f"{group}/{name}")
        yield from point(key, value, ended(campaign, certificate), certificate.look - 1)


def _runs(campaign: CampaignRecord, looks: Sequence[Certificate], arm: Arm) -> Iterator[MetricPoint]:
    """Score of every fresh run, numbered from 1 over all certificates; one that counts again is not repeated."""
    every = [(one, run.score) for one in looks for run in one.runs[one.carried :] if run.arm == arm]
    for number, (one, score) in enumerate(every, 1):
        yield from point(f"certificate/{arm}/run", score.value, ended(campaign, one), number)
