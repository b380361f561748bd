"""The MLflow run of a campaign: best score so far, certificates, the note, and the datasets.

Certificate n is logged at step n - 1, so that a single one is drawn as a bar. Gains are positive if the champion is
better, whichever way the metric points; the sentences (tasks/describe.py) give differences of scores.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from environments.plugins import name_of
from tasks.describe import ARMS, caution, headline, mean_of, outcome, ships
from tasks.preparing import PREPARED, RECORD
from tasks.sandbox import outputs
from tasks.stats.certificate import Certificate
from tasks.store.ledger import Ledger
from tasks.system.redact import scrub_text
from tasks.tracking.trial_run import origin, trial_times
from tasks.tracking.values import NOTE, MetricPoint, inert, milliseconds, parameters, plain, points
from tasks.trial import History, Trial, best

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

STATED = ("proposer", "rule", "cancel", "replicates", "seed", "isolation")
"""Settings of a campaign that are parameters of its run, by the same name."""


def campaign_parameters(ledger: Ledger) -> dict[str, str]:
    campaign = ledger.campaign
    options = {"rule": campaign.rule_options, "cancel": campaign.cancel_options, "proposer": campaign.options}
    tables = {"set": campaign.overrides, **options}
    return parameters(
        {
            "environment": campaign.source,
            "budget_seconds": f"{ledger.environment.budget_seconds:g}",
            **{name: str(getattr(campaign, name)) for name in STATED},
            **{f"{table}.{key}": str(value) for table, values in tables.items() for key, value in values.items()},
        }
    )


def campaign_tags(ledger: Ledger, history: History, own: Sequence[Certificate], state: str) -> dict[str, str]:
    """Its tags, with the note in Markdown, of which MLflow shows five lines: the result, the certificate, the count."""
    lines = [f"**{ledger.campaign.name}: {headline(history, own)}**"]
    if own:
        lines.append(f"{words(own[-1])}; {caution(own[-1]) if own[-1].passed else ships(own)}.")
    lines.append(f"{state}: {sum(trial.number > 0 for trial in history)} trials besides the baseline")
    note = "\n\n".join(inert(plain(line)) for line in lines)
    tags = {"kind": "campaign", NOTE: note, **origin(ledger)}
    if champion := best(history):
        tags["champion"] = str(champion.number)
    if own:
        tags |= {"certified": "yes" if own[-1].passed else "no", "certificate": words(own[-1])}
    return tags


def words(certificate: Certificate) -> str:
    return plain(outcome(certificate))


def best_so_far(ledger: Ledger, history: History, trial: Trial) -> list[MetricPoint]:
    """The scores of champion and baseline after this trial was decided: points of a curve over trial numbers."""
    seen = tuple(one for one in history if one.order <= trial.order)
    champion = best(seen)
    values = {"champion/score": mean_of(seen, champion.number) if champion else None}
    if trial.number == 0:
        values["baseline/score"] = trial.score.value
    return points(values, trial_times(ledger, trial)[1], trial.number)


def figures(certificate: Certificate) -> dict[str, float | None]:
    """What a certificate measured; nothing if runs crashed, since then no mean is shown."""
    if certificate.comparison is None:
        return {}
    low, high = certificate.bounds or (None, None)
    values = {"gain": certificate.comparison.gain, "p": certificate.comparison.p, "low": low, "high": high}
    return values | {arm: certificate.mean(arm) for arm in ARMS}


def certificate_points(ledger: Ledger, certificates: Sequence[Certificate]) -> list[MetricPoint]:
    """Metrics of every certificate, those of other environments included."""
    found: list[MetricPoint] = []
    for one in certificates:
        group = f"transfer{one.conditions.name}/{one.environment}" if one.elsewhere else "certificate"
        values = {f"{group}/{name}": value for name, value in figures(one).items()}
        found += points(values, end_of(ledger, one), one.look - 1)
    return found


def end_of(ledger: Ledger, certificate: Certificate) -> int:
    """When its last run ended, in milliseconds."""
    ends = (run.run.started + run.run.wall_seconds for run in certificate.runs if run.run.started > 0)
    return milliseconds(max(ends, default=ledger.campaign.created))


def environment_digest(ledger: Ledger) -> str:
    """That of the environment's folder, as frozen at the campaign's start."""
    return outputs.digest(ledger.path / "environment")[:16]


def datasets(ledger: Ledger) -> list[DatasetInput]:
    """The environment, and its prepared questions, which themselves are never sent: their number for each use is."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    environment, source, note = ledger.environment, scrub_text(ledger.campaign.source), ledger.path / RECORD
    facts: object = {"metric": environment.metric, "judge": name_of(environment.judge)}
    used = {"environment": (environment.name, environment_digest(ledger), facts)}
    if note.is_file():
        made = PREPARED.validate_json(note.read_bytes())
        used["questions"] = f"{environment.name}/questions", made.content, made.questions
    return [
        DatasetInput(
            Dataset(name, digest, "nightshift", json.dumps({"uri": source}), profile=json.dumps(profile)),
            [InputTag("mlflow.data.context", context)],
        )
        for context, (name, digest, profile) in used.items()
    ]
