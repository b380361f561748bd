"""The MLflow run of a trial: name, tags and metrics. (Of its campaign: campaign_run.py.)

The content of out/ comes from an untrusted program. MLflow draws a single point at step 0 as a bar, so scalars are
logged there, and curves under `train/` against environment steps.
"""

from __future__ import annotations

import math
import os
from functools import cache, partial
from io import BytesIO
from itertools import islice
from pathlib import Path

from environments.safe_open import open_below
from tasks.sandbox.progress import PROGRESS_LIMIT, numbers, parse_report
from tasks.store.campaign_lock import holder
from tasks.store.ledger import Ledger
from tasks.system.redact import scrub_text
from tasks.tracking.values import NOTE, MetricPoint, inert, metric_key, milliseconds, plain, points
from tasks.trial import ResourceSample, Trial

CURVES, CURVE_POINTS, POINTS = 100, 200, 1000
"""Limits of a trial: curves, points of each, points in all."""
LARGEST = 1e12
"""Larger seconds and steps are ignored: as milliseconds they overflow MLflow's integers."""
LONGEST_LINE = 2**20
"""Bytes of a report, beyond which it is not drawn."""


def trial_key(ledger: Ledger, trial: Trial) -> str:
    return f"{ledger.campaign.campaign_id}/{trial.number:04d}/{trial.attempt}"


def trial_name(ledger: Ledger, trial: Trial) -> str:
    """Number, verdict and score first: MLflow's table shows no metric by itself, and cuts off the end of a name."""
    again = f".{trial.attempt}" if trial.attempt > 1 else ""
    score = "" if trial.score.value is None else f" {trial.score.value:.4g}"
    return f"{trial.number:04d}{again} {trial.verdict.kind}{score} {ledger.campaign.name}"


def trial_tags(ledger: Ledger, trial: Trial) -> dict[str, str]:
    said, runs = trial.proposal, trial.runs
    return {
        "kind": "trial", "trial": str(trial.number), "attempt": str(trial.attempt), "proposer": said.proposer,
        "verdict": trial.verdict.kind, "level": trial.verdict.level or "", "model": plain(said.model),
        "instead_of": plain(said.instead_of), "isolation": runs[-1].isolation if runs else "",
        "machine": runs[-1].machine if runs else "", NOTE: trial_note(trial), **origin(ledger),
    }  # fmt: skip


def origin(ledger: Ledger) -> dict[str, str]:
    """Tags of every run; without those of MLflow's own a client's run shows a dash."""
    return {
        "campaign": ledger.campaign.name,
        "mlflow.user": os.environ.get("USER", str(os.getuid())),
        "mlflow.source.name": "nightshift",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": ledger.campaign.commit,
        "prefect.flow_run_id": holder(ledger).get("flow_run_id", ""),
    }


def trial_note(trial: Trial) -> str:
    """The note in Markdown, of which MLflow shows five lines: the verdict first, a crash's log verbatim."""
    level = f" ({trial.verdict.level})" if trial.verdict.level else ""
    reason, _, log = plain(trial.verdict.reason).partition("\n")
    quoted = "\n\n" + "\n".join(f"    {line}" for line in log.splitlines()) if log else ""
    said = "".join(f"\n\n{inert(plain(note))}" for note in trial.notes)
    note = f"**{trial.verdict.kind}**{level}: {inert(reason)}{said}\n\n{inert(plain(trial.proposal.rationale))}{quoted}"
    return note.strip()


def trial_times(ledger: Ledger, trial: Trial) -> tuple[int, int]:
    """Start of its first run and end of its last, in milliseconds; equal if nothing ran."""
    every = (*trial.runs, *(rerun.run for rerun in trial.reruns))
    runs = [run for run in every if run.started > 0]
    start = min((run.started for run in runs), default=ledger.campaign.created)
    end = max((run.started + run.wall_seconds for run in runs), default=start)
    return milliseconds(start), milliseconds(end)


def trial_points(ledger: Ledger, trial: Trial) -> list[MetricPoint]:
    """Everything that was measured of a trial: at step 0, and by run (from 1), training step or sample."""
    start, end = trial_times(ledger, trial)
    values: dict[str, float | None] = {"trial": trial.number, "cost/usd": trial.cost}
    if trial.runs:
        values["time/train"] = math.fsum(run.seconds for run in trial.runs)
        values["memory/peak_gb"] = max(run.peak_memory or 0 for run in trial.runs) / 2**30 or None
    found = [*curves(ledger.place_of(trial).progress, start), *system_points(trial)]
    if trial.verdict.kind != "crash":  # a crash has no score: never 0
        values |= {metric_key(scrub_text(name)): figure for name, figure in trial.score.also.items()}
        values |= {ledger.environment.metric: trial.score.value, "score/se": trial.score.se}
        for number, score in enumerate(trial.score.runs, 1):
            found += points({"score/run": score.value}, end, number)
    return [*points(values, end), *found]


def system_points(trial: Trial) -> list[MetricPoint]:
    """The resources of its first training, by sample, under the names of MLflow's page "System metrics".

    They are those of the training's own processes: a processor core in full use is 100 %.
    """
    found: list[MetricPoint] = []
    for run in trial.runs[:1]:
        before = ResourceSample(0.0, 0.0, 0)
        for step, now in enumerate(run.resources):
            share = (now.cpu - before.cpu) / max(now.elapsed - before.elapsed, 0.01)
            values: dict[str, float | None] = {
                "system/cpu_utilization_percentage": round(100 * share, 1),
                "system/system_memory_usage_megabytes": round(now.memory / 2**20, 1),
            }
            for card, used in enumerate(now.gpu_memory):
                values[f"system/gpu_{card}_memory_usage_megabytes"] = used / 2**20
            found += points(values, milliseconds(run.started + now.elapsed), step)
            before = now
    return found


def curves(progress: Path, start: int) -> list[MetricPoint]:
    """The reported metrics against steps, thinned evenly; `start` is the trial's, in milliseconds.

    A report without a step stands at its whole seconds, one without seconds at the start.
    """
    found: dict[str, list[MetricPoint]] = {}
    key_of = cache(lambda name: f"train/{metric_key(scrub_text(name))}")  # reports repeat their names
    with open_below(progress.parent, progress.name) or BytesIO() as reports:
        every = 1 + reports.seek(0, os.SEEK_END) // PROGRESS_LIMIT
        reports.seek(0)
        lines = [*islice(iter(partial(reports.readline, LONGEST_LINE), b""), 0, None, every)]
    for report in filter(None, map(parse_report, lines)):
        place = numbers({"elapsed": 0, **report})
        elapsed = place.get("elapsed", -1.0)
        step = place.get("step", -1.0 if "step" in report else elapsed)
        if not (0 <= elapsed <= LARGEST and 0 <= step <= LARGEST):
            continue
        for name, number in numbers(report.get("metrics")).items():
            point = MetricPoint(key_of(name), number, start + milliseconds(elapsed), int(step))
            found.setdefault(point.key, []).append(point)
    kept = list(found.values())[:CURVES]
    each = min(CURVE_POINTS, POINTS // max(len(kept), 1))
    # At equal distances, the last one included: MLflow's table shows it.
    return [point for curve in kept for point in curve[:: -math.ceil(len(curve) / each)][::-1]]
