"""The MLflow run of a trial: parameters, tags, metrics and files. (Of its campaign: tasks/tracking/campaign_run.py.)

Pure but for reading a trial's directory. The content of out/ comes from an untrusted program: links are not followed,
numbers are checked, names cleaned, sizes bounded.

MLflow draws a single point at step 0 as a bar, and at step 20000 as a dot. So scalars are logged at step 0, and
curves under `train/` against environment steps.
"""

from __future__ import annotations

import getpass
import json
import math
import os
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeGuard

from environments.space import Value
from tasks.store.safe_read import open_below
from tasks.system.redact import clean, known_secrets, scrub, scrub_text
from tasks.tracking.datasets import UsedDataset
from tasks.trial import Params, ResourceSample, Trial

LOG_BYTES = 64 * 2**10
CURVES, CURVE_POINTS, POINTS = 100, 200, 1000
"""Limits of a trial: curves, points of each, points in all."""
PROGRESS_BYTES = 2**18
"""Of a larger progress.jsonl only lines at equal distances are read."""
LINE_BYTES = 64 * 2**10
NOTE_CHARACTERS = 8000
REASON_CHARACTERS = 500
LARGEST = 1e12
"""Larger seconds and steps are ignored: as milliseconds they overflow MLflow's integers."""


@dataclass(frozen=True)
class CampaignRecord:
    campaign: str
    campaign_id: str
    environment: str
    metric: str
    higher_is_better: bool
    flow_run_id: str | None
    created: float
    """Unix time, in seconds."""
    spec: Mapping[str, str]
    varies: tuple[str, ...] = ()
    """Parameters that the search varies."""
    logarithmic: tuple[str, ...] = ()
    """Those of them with a logarithmic scale."""
    commit: str = ""
    """The git commit that the environment came from; empty outside of git."""
    datasets: tuple[UsedDataset, ...] = ()


@dataclass(frozen=True)
class TrialFiles:
    dir: Path
    """Laid out as tasks/store/workspace.py says."""
    commit: str | None = None
    """Its commit in the lineage repository, if there is one."""


class MetricPoint(NamedTuple):
    key: str
    value: float
    timestamp: int
    """Unix time in milliseconds: part of a point's identity, so never the time of logging."""
    step: int


def campaign_tags(campaign: CampaignRecord) -> dict[str, str]:
    return {"kind": "campaign", "idempotency_key": campaign.campaign_id, **origin(campaign)}


def trial_tags(campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> dict[str, str]:
    said = trial.proposal
    optional = {
        "level": trial.verdict.level,
        "lineage.commit": files.commit,
        "model": plain(said.model) or None,
        "category": plain(said.category)[:REASON_CHARACTERS] or None,
        "instead_of": plain(said.instead_of)[:REASON_CHARACTERS] or None,
        "share": f"{said.share:g}" if said.is_short else None,
        "promotes": None if said.promotes is None else str(said.promotes),
    }
    for run in trial.runs:
        if run.due and run.due.spared:
            optional["due"] = plain(run.due.reason)[:REASON_CHARACTERS]
        optional["isolation"] = run.isolation or None
        optional["machine"] = run.machine or None
        optional["slurm.job_id"] = run.job or None
        optional["network"] = "on" if run.network else None
    return {
        "kind": "trial",
        "idempotency_key": trial_key(campaign, trial),
        "trial": str(trial.number),
        "attempt": str(trial.attempt),
        "proposer": trial.proposal.proposer,
        "verdict": trial.verdict.kind,
        "mlflow.note.content": trial_note(trial),
        **{name: value for name, value in optional.items() if value is not None},
        **origin(campaign),
    }


def trial_key(campaign: CampaignRecord, trial: Trial) -> str:
    return f"{campaign.campaign_id}/{trial.number:04d}/{trial.attempt}"


def trial_run_name(campaign: CampaignRecord, trial: Trial) -> str:
    again = f" attempt {trial.attempt}" if trial.attempt > 1 else ""
    return f"{campaign.campaign}-{trial.number:04d}{again}"


def origin(campaign: CampaignRecord) -> dict[str, str]:
    """Tags that a client must set, or the UI shows a dash."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have a number and no name
        user = str(os.getuid())
    return {
        "campaign": campaign.campaign,
        "campaign_id": campaign.campaign_id,
        "environment": campaign.environment,
        "mlflow.user": user,
        "mlflow.source.name": "nightshift",
        "mlflow.source.type": "LOCAL",
        **({"mlflow.source.git.commit": campaign.commit} if campaign.commit else {}),
        **({"prefect.flow_run_id": campaign.flow_run_id} if campaign.flow_run_id else {}),
    }


def trial_note(trial: Trial) -> str:
    """The note in Markdown, of which MLflow shows five lines: the verdict first, a crash's log verbatim."""
    level = f" ({trial.verdict.level})" if trial.verdict.level else ""
    reason, _, log = plain(trial.verdict.reason).partition("\n")
    quoted = "\n\n" + "\n".join(f"    {line}" for line in log.splitlines()) if log else ""
    said = "".join(f"\n\n{inert(plain(note))}" for note in trial.notes)
    note = f"**{trial.verdict.kind}**{level}: {inert(reason)}{said}\n\n{inert(plain(trial.proposal.rationale))}{quoted}"
    return note.strip()[:NOTE_CHARACTERS]


def plain(text: str) -> str:
    """Text from a program or a model, without secrets and terminal control characters."""
    return "\n".join(clean(text))


def inert(text: str) -> str:
    """Such text safe for Markdown: without images and HTML, which a page would load from any address."""
    # A backslash in the text would escape ours.
    return re.sub(r"(\\*)(!(?=\[)|<(?=[A-Za-z/!?]))", r"\1\1\\\2", text)


def shown(values: Mapping[str, Value]) -> dict[str, str]:
    """Values as MLflow parameters; numbers stay numbers, for a numeric axis."""
    return {
        metric_key(name): f"{v:.6g}" if isinstance(v, float) else scrub_text(str(v))[:6000]
        for name, v in values.items()
    }


def logarithms(campaign: CampaignRecord, params: Params) -> dict[str, str]:
    """Decimal logarithms of the parameters with a logarithmic scale: MLflow's axes of parameters are linear."""
    values = {name: params.get(name) for name in campaign.logarithmic}
    return {
        log10_key(name): f"{math.log10(value):.6g}"
        for name, value in values.items()
        if isinstance(value, int | float) and value > 0
    }


def log10_key(name: str) -> str:
    return f"log10/{metric_key(name)}"


@lru_cache(1024)
def metric_key(name: str) -> str:
    """A name that MLflow accepts: `pass@1` becomes `pass_1`."""
    parts = re.sub(r"[^\w.\-: /]", "_", name[:200]).split("/")
    return "/".join(part for part in parts if part not in ("", ".", "..")) or "_"


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def trial_times(campaign: CampaignRecord, trial: Trial) -> tuple[int, int]:
    """Start of its first run and end of its last, in milliseconds; equal if nothing ran."""
    every = (*trial.runs, *(rerun.run for rerun in trial.reruns if not rerun.calibrated))
    runs = [run for run in every if run.started > 0]
    start = min((run.started for run in runs), default=campaign.created)
    end = max((run.started + run.wall_seconds for run in runs), default=start)
    return milliseconds(start), milliseconds(end)


def trial_scalars(campaign: CampaignRecord, trial: Trial) -> list[MetricPoint]:
    """A trial's measurements. A crash has no score, whatever was measured before: never 0."""
    values: dict[str, float | None] = {"cost/usd": trial.cost}
    scored = trial.verdict.kind != "crash"
    if scored:
        values |= {metric_key(scrub_text(name)): figure for name, figure in trial.score.also.items()}
        values |= {
            metric_key(campaign.metric): trial.score.value,
            "score": trial.score.value,
            "score/se": trial.score.se,
        }
        if trial.score.runs:
            values |= {"runs": len(trial.score.runs), "score/run_sd": statistics.stdev(trial.score.values)}
    if trial.runs:
        values["time/train"] = math.fsum(run.seconds for run in trial.runs)
        values["memory/peak_gb"] = max(run.peak_memory or 0 for run in trial.runs) / 2**30 or None
        for run in trial.runs:
            for index, peak in enumerate(run.gpu_memory or ()):
                key = f"memory/gpu{index}_peak_gb"
                values[key] = max(values.get(key) or 0.0, peak / 2**30)
    end = trial_times(campaign, trial)[1]
    once = [found for key, value in values.items() for found in point(key, value, end)]
    return [*once, *_trainings(trial, end)] if scored else once


def system_points(trial: Trial) -> list[MetricPoint]:
    """The resources of its first training, by sample, under the names of MLflow's page "System metrics".

    They are those of the training's own processes: a processor core in full use is 100 %.
    """
    found: list[MetricPoint] = []
    for run in trial.runs[:1]:
        before = ResourceSample(0.0, 0.0, 0)
        for step, now in enumerate(run.resources):
            share = (now.cpu - before.cpu) / max(now.elapsed - before.elapsed, 0.01)
            values = {
                "cpu_utilization_percentage": round(100 * share, 1),
                "system_memory_usage_megabytes": round(now.memory / 2**20, 1),
                **{f"gpu_{card}_memory_usage_megabytes": used / 2**20 for card, used in enumerate(now.gpu_memory)},
            }
            moment = milliseconds(run.started + now.elapsed)
            found += [MetricPoint(f"system/{name}", value, moment, step) for name, value in values.items()]
            before = now
    return found


def _trainings(trial: Trial, moment: int) -> Iterator[MetricPoint]:
    """Score of each training, from step 1: its own if there are several, and reruns."""
    own = [rerun.score for rerun in trial.reruns if rerun.of == trial.number]
    others = [rerun.score for rerun in trial.reruns if rerun.of != trial.number]
    for key, scores in [("score/run", trial.score.runs), ("score/rerun", own), ("champion/rerun", others)]:
        for number, score in enumerate(scores, 1):
            yield from point(key, score.value, moment, number)


def point(key: str, value: float | None, moment: int, step: int = 0) -> list[MetricPoint]:
    """A point of the log; none without a number."""
    return [] if value is None or not math.isfinite(value) else [MetricPoint(key, value, moment, step)]


def contradicts(metrics: Mapping[str, float], params: Mapping[str, str], trial: Trial) -> bool:
    """Whether a stored run holds values that MLflow cannot change: it neither deletes points nor changes parameters."""
    score = None if trial.verdict.kind == "crash" else trial.score.value
    now = shown(trial.proposal.params)
    return metrics.get("score", score) != score or any(params.get(k, v) != v for k, v in now.items())


def curves(progress: Path, start: int) -> list[MetricPoint]:
    """The reported metrics against steps, thinned evenly; `start` is the trial's, in milliseconds.

    A report without a step stands at its whole seconds, one without seconds at the start.
    """
    found: dict[str, list[MetricPoint]] = {}
    secrets = known_secrets()

    @lru_cache(1024)
    def key(name: str) -> str:
        clear = scrub(name.encode(errors="replace"), secrets).decode(errors="replace")
        return f"train/{metric_key(clear)}"

    for line in _lines(progress):
        for point in _points(line, start, key):
            found.setdefault(point.key, []).append(point)
    kept = list(found.values())[:CURVES]
    each = min(CURVE_POINTS, POINTS // max(len(kept), 1))
    return [point for curve in kept for point in _thin(curve, each)]


def _lines(path: Path) -> Iterator[bytes]:
    if (file := open_below(path.parent, path.name)) is None:
        return
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= PROGRESS_BYTES:
            yield from file.read(PROGRESS_BYTES).splitlines()
            return
        for part in range(2 * CURVE_POINTS):
            file.seek(size * part // (2 * CURVE_POINTS))
            file.readline(LINE_BYTES)  # the rest of a line that was entered in the middle
            yield file.readline(LINE_BYTES)


def _points(line: bytes, start: int, key: Callable[[str], str]) -> Iterator[MetricPoint]:
    """The points of one report, named by `key`; none if it is invalid. Integers of any size are read as floats."""
    try:
        report = json.loads(line, parse_int=float)
    except (ValueError, RecursionError):
        return
    if not isinstance(report, dict):
        return
    elapsed, metrics = report.get("elapsed", 0.0), report.get("metrics")
    step = report.get("step", report.get("elapsed"))
    if not (_is_count(elapsed) and _is_count(step) and isinstance(metrics, dict)):
        return
    for name, value in metrics.items():
        if isinstance(value, float) and math.isfinite(value):
            yield MetricPoint(key(name), value, start + milliseconds(elapsed), int(step))


def _is_count(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and 0 <= value <= LARGEST


def _thin(points: Sequence[MetricPoint], limit: int) -> Sequence[MetricPoint]:
    """At most `limit` (>= 2) points at equal distances, including the first and the last."""
    if len(points) <= limit:
        return points
    return [points[round(i * (len(points) - 1) / (limit - 1))] for i in range(limit)]


def log_tail(path: Path) -> str:
    """The end of its printed output, safe to show, in whole lines if possible."""
    if (file := open_below(path.parent, path.name)) is None:
        return ""
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES))
        tail = file.read(LOG_BYTES)
    if size > LOG_BYTES:
        tail = tail.partition(b"\n")[2] or tail
    return "".join(f"{line}\n" for line in clean(tail.decode(errors="replace")))
