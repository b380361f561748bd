"""Trials with files to record in MLflow, and what it then has of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from environments.score import Score
from tasks.store.ledger import Ledger
from tasks.tracking.connection import Store
from tasks.tracking.sync import KEY
from tasks.trial import Params, Proposal, Run, Trial, Verdict, VerdictKind
from tests.support.ledgers import filled
from tests.support.toy import folder_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

BEGIN = 1_700_000_000.0

PARAMS: Params = {"learning_rate": 0.0003, "clip": 0.2, "lanes": 8, "orthogonal": True, "activation": "tanh"}


def make_trial(number: int = 7, kind: VerdictKind = "keep") -> Trial:
    """A trial of one run that started at BEGIN + 100, trained 12 s and took 15 s in all."""
    score = Score(312.5, (312.5,), 1.5, 1)
    run = Run("trials/0007", 1, 12.0, "finished", peak_memory=2**30, started=BEGIN + 100, wall_seconds=15.0)
    level: Literal["provisional"] | None = "provisional" if kind == "keep" else None
    proposal = Proposal(PARAMS, rationale="a smaller step", proposer="tpe")
    return Trial(number, 1, number, proposal, (run,), score, Verdict(kind, "beats 300 by 12.5", level))


def put(ledger: Ledger, trial: Trial) -> Trial:
    """Write a decided trial into a ledger, with files: four curves of 50 points each among them."""
    filled(ledger, (trial,))
    curves = [
        {"elapsed": i / 10, "step": 100 * i, "metrics": {f"m/{k}": i + k / 10 for k in range(4)}} for i in range(50)
    ]
    folder_of(
        ledger.place_of(trial).path,
        {
            "workspace/config.json": '{"seed": 1}', "log.txt": "ready\ndone\n", "diff.patch": "--- a\n+++ b\n",
            "out/policy.pt": "weights",
            "out/progress.jsonl": "".join(json.dumps(line) + "\n" for line in ({"ready": True}, *curves)),
        },
    )  # fmt: skip
    return trial


def client_of(store: Store) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(store.uri)


def runs_of(store: Store, ledger: Ledger, kind: str = "trial") -> list[MlflowRun]:
    """The campaign's runs of a kind, in the order of their keys."""
    client = client_of(store)
    experiment = client.get_experiment_by_name(f"nightshift/{ledger.environment.name}")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], f"tags.kind = '{kind}'")
    own = [run for run in runs if run.data.tags[KEY].startswith(ledger.campaign.campaign_id)]
    return sorted(own, key=lambda run: str(run.data.tags[KEY]))


def artifacts_of(store: Store, run_id: str, folder: str | None = None) -> set[str]:
    return {entry.path for entry in client_of(store).list_artifacts(run_id, folder)}


def points_of(store: Store, run: MlflowRun) -> dict[str, list[tuple[int, int, float]]]:
    client = client_of(store)
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
