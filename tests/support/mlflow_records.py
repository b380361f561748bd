"""Trials with files to record in MLflow, and what it then has of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from environments.score import Score
from tasks.tracking.client import CampaignRecord, Mlflow, TrialFiles
from tasks.trial import Params, Proposal, Run, Trial, Verdict, VerdictKind

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

BEGIN = 1_700_000_000.0


PARAMS: Params = {"learning_rate": 0.0003, "clip": 0.2, "lanes": 8, "orthogonal": True, "activation": "tanh"}


def make_trial(number: int = 7, kind: VerdictKind = "keep", value: float | None = 312.5) -> Trial:
    """A trial of one run that started at BEGIN + 100, trained 12 s and took 15 s in all."""
    score = Score(value, (value,), 1.5, 1) if value is not None else Score.missing("no checkpoint", True)
    run = Run("trials/0007", 1, 12.0, "finished", peak_memory=2**30, started=BEGIN + 100, wall_seconds=15.0)
    level: Literal["provisional"] | None = "provisional" if kind == "keep" else None
    proposal = Proposal(PARAMS, rationale="a smaller step", proposer="tpe")
    return Trial(number, 1, number, proposal, (run,), score, Verdict(kind, "beats 300 by 12.5", level))


def make_files(tmp_path: Path, reports: int = 50, metrics: int = 4) -> TrialFiles:
    """A trial's directory with `metrics` curves of `reports` points each."""
    out, workspace = tmp_path / "out", tmp_path / "workspace"
    out.mkdir()
    workspace.mkdir()
    (workspace / "config.json").write_text('{"seed": 1}')
    (tmp_path / "log.txt").write_text("ready\ndone\n")
    (tmp_path / "diff.patch").write_text("--- a\n+++ b\n")
    (out / "policy.pt").write_bytes(b"weights")
    lines = [{"ready": True}] + [
        {"elapsed": i / 10, "step": 100 * i, "metrics": {f"m/{k}": i + k / 10 for k in range(metrics)}}
        for i in range(reports)
    ]
    (out / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return TrialFiles(tmp_path, commit="abc123")


def client_of(tracker: Mlflow) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(tracker.uri)


def runs_of(tracker: Mlflow, campaign: CampaignRecord, kind: str = "trial") -> list[MlflowRun]:
    client = client_of(tracker)
    experiment = client.get_experiment_by_name(f"nightshift/{campaign.environment}")
    assert experiment is not None
    only = f"tags.kind = '{kind}' and tags.campaign_id = '{campaign.campaign_id}'"
    return list(client.search_runs([experiment.experiment_id], only))


def artifacts_of(tracker: Mlflow, run_id: str, folder: str | None = None) -> set[str]:
    return {entry.path for entry in client_of(tracker).list_artifacts(run_id, folder)}


def points_of(tracker: Mlflow, run: MlflowRun) -> dict[str, list[tuple[int, int, float]]]:
    client = client_of(tracker)
    histories = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {key: sorted((p.step, p.timestamp, p.value) for p in history) for key, history in histories.items()}


def mlflow_runs(home: Path, campaign: str) -> dict[str, Any]:
    """MLflow's runs of a campaign by trial, its own as `campaign`; two of one trial are a failure."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name.startswith("nightshift/")]
    runs = client.search_runs([experiment.experiment_id], f"tags.campaign = '{campaign}'")
    found = {run.data.tags.get("trial", "campaign"): run for run in runs}
    assert len(found) == len(runs)
    return found
