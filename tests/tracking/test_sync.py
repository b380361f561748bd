"""`sync`, in a real sqlite store: each trial once whatever is killed when, and what its run and the campaign's hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from environments.plugins import Refused
from environments.score import Score
from flows.engine import certifying
from tasks.store.ledger import Ledger
from tasks.tracking import campaign_run, sync, trial_run
from tasks.tracking.connection import Store, locate
from tasks.tracking.trial_run import curves
from tasks.tracking.values import MetricPoint
from tasks.trial import History, VerdictKind
from tests.support.histories import certified, tried
from tests.support.mlflow_records import PARAMS, artifacts_of, client_of, make_trial, points_of, put, runs_of

ENDED = "finished"


def night(ledger: Ledger, *values: float | None) -> History:
    """Decided trials, where lower is better; None: a crash."""
    history: History = ()
    for value in values:
        history += (put(ledger, tried(history, value, params={"x": float(len(history))}, higher_is_better=False)),)
    return history


def recorded(ledger: Ledger, store: Store, state: str = "running") -> sync.Synced:
    done = sync.sync(ledger, store, state)
    assert done.problem == "" and sync.waiting(ledger, ledger.history()) == (state == "running")
    return done


def everything(store: Store) -> list[object]:
    """All that MLflow has of runs, to be compared."""
    client = client_of(store)
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()], max_results=1000)
    return sorted(
        [str(sorted(run.data.tags.items())), str(run.data.params), run.info.status, str(points_of(store, run)),
         str(sorted(artifacts_of(store, run.info.run_id)))]
        for run in runs
    )  # fmt: skip


# Each trial once


def test_a_second_call_changes_nothing(ledger: Ledger, store: Store) -> None:
    night(ledger, 3.0, None, 2.0, 2.5)
    recorded(ledger, store, ENDED)
    before = everything(store)
    recorded(ledger, store, ENDED)
    assert everything(store) == before and len(before) == 5


KILLED = """\
import os, signal, sys
from pathlib import Path
from mlflow import MlflowClient
from tasks.store.ledger import Ledger
from tasks.tracking.connection import Store
from tasks.tracking.sync import sync

REQUESTS = "create_experiment create_run log_batch log_inputs log_artifacts set_terminated set_tag".split()
home = Path(os.environ["NIGHTSHIFT_HOME"])

def dying(name):
    own = getattr(MlflowClient, name)
    def call(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return own(*args, **kwargs)
    return call

for name in REQUESTS:
    setattr(MlflowClient, name, dying(name))
left = int(sys.argv[1])
print(sync(Ledger.open("n"), Store(f"sqlite:///{home}/mlflow.db", home), "finished").problem)
"""
"""A process that is killed before its n-th request to MLflow."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whenever_it_is_killed_every_trial_is_there_once_in_the_end(ledger: Ledger, store: Store, home: Path) -> None:
    night(ledger, 3.0, None, 2.0)
    for requests in ("0", "2", "5", "6", "8"):
        killed = subprocess.run([sys.executable, "-c", KILLED, requests], env=os.environ, capture_output=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    recorded(ledger, store, ENDED)
    assert [run.data.tags["trial"] for run in runs_of(store, ledger)] == ["0", "1", "2"]
    assert {run.info.status for run in runs_of(store, ledger)} == {"FINISHED", "FAILED"}
    assert len(runs_of(store, ledger, "campaign")) == 1


def test_another_attempt_is_another_run_and_the_first_says_that_it_counts_no_more(ledger: Ledger, store: Store) -> None:
    first = night(ledger, 3.0, 2.0)[1]
    recorded(ledger, store)
    put(ledger, replace(first, attempt=2, order=2, score=Score.of([2.2], False)))
    recorded(ledger, store)
    _, old, new = runs_of(store, ledger)
    assert [run.data.tags["attempt"] for run in (old, new)] == ["1", "2"]
    assert (old.data.metrics["loss"], new.data.metrics["loss"]) == (2.0, 2.2)
    assert "superseded" in old.data.tags and "superseded" not in new.data.tags
    assert new.info.run_name == "0001.2 keep 2.2 n"


def test_files_that_cannot_be_uploaded_hold_back_no_figures_and_no_other_trial(
    ledger: Ledger, store: Store, home: Path
) -> None:
    night(ledger, 3.0, 2.0)
    (home / "artifacts").write_text("no folder")
    done = sync.sync(ledger, store, ENDED)
    assert done.problem and done.runs == {}
    assert [run.data.metrics["loss"] for run in runs_of(store, ledger)] == [3.0, 2.0]
    assert runs_of(store, ledger, "campaign")[0].info.status == "FINISHED"
    (home / "artifacts").unlink()
    recorded(ledger, store, ENDED)
    assert "config.json" in artifacts_of(store, runs_of(store, ledger)[0].info.run_id)


# What the run of a trial holds


def test_a_trial_is_a_run_below_its_campaign(ledger: Ledger, store: Store) -> None:
    put(ledger, make_trial())
    recorded(ledger, store)
    (run,), (parent,) = runs_of(store, ledger), runs_of(store, ledger, "campaign")
    assert run.info.run_name == "0007 keep 312.5 n" and run.info.status == "FINISHED"
    assert (run.info.start_time, run.info.end_time) == (1_700_000_100_000, 1_700_000_115_000)
    tags = run.data.tags
    assert tags["mlflow.parentRunId"] == parent.info.run_id
    assert (tags["verdict"], tags["level"], tags["proposer"], tags["campaign"]) == ("keep", "provisional", "tpe", "n")
    assert "beats 300" in tags["mlflow.note.content"] and "a smaller step" in tags["mlflow.note.content"]
    assert run.data.params.keys() == PARAMS.keys() and float(run.data.params["learning_rate"]) == 0.0003
    values = run.data.metrics
    assert (values["trial"], values["loss"], values["time/train"], values["memory/peak_gb"]) == (7.0, 312.5, 12.0, 1.0)
    assert sum(value == 312.5 for value in values.values()) == 1, "one objective to compare"
    assert len(points_of(store, run)["train/m/0"]) == 50
    assert artifacts_of(store, run.info.run_id) == {"config.json", "diff.patch", "log.txt", "out"}
    (dataset,) = run.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("quad", campaign_run.environment_digest(ledger))


@pytest.mark.parametrize(("kind", "status"), [("crash", "FAILED"), ("cancelled", "KILLED")])
def test_the_status_tells_the_verdict_and_a_crash_has_no_score(
    ledger: Ledger, store: Store, kind: VerdictKind, status: str
) -> None:
    put(ledger, make_trial(kind=kind))
    recorded(ledger, store)
    (run,) = runs_of(store, ledger)
    assert run.info.status == status
    assert ("loss" in run.data.metrics) == (kind != "crash")
    assert "out" not in artifacts_of(store, run.info.run_id), "only a kept checkpoint is uploaded"


# What the campaign's run holds


def test_the_best_score_so_far_is_a_curve_over_trials(ledger: Ledger, store: Store) -> None:
    history = night(ledger, 3.0, 4.0, 2.0)
    for count, state in ((1, "stopped"), (3, "running")):  # a campaign that was stopped may go on
        for trial in history[:count]:
            put(ledger, trial)
        recorded(ledger, store, state)
    (parent,) = runs_of(store, ledger, "campaign")
    assert parent.info.status == "RUNNING"
    curve = [(step, value) for step, _, value in points_of(store, parent)["champion/score"]]
    assert curve == [(0, 3.0), (1, 3.0), (2, 2.0)]
    assert parent.data.metrics["baseline/score"] == 3.0
    assert (parent.data.tags["champion"], parent.data.params["rule"]) == ("2", ledger.campaign.rule)
    assert "2 trials" in parent.data.tags["mlflow.note.content"]


def prove(ledger: Ledger, mine: tuple[float, ...], **more: Any) -> None:
    certifying.store(ledger, certified(1, mine, (3.0, 3.1, 2.9, 3.0), higher_is_better=False, error=0.05, **more))


def test_certificates_are_figures_and_words(ledger: Ledger, store: Store) -> None:
    night(ledger, 3.0, 2.0)
    prove(ledger, (3.0, 2.9, 3.1, 3.0))
    recorded(ledger, store)
    (parent,) = runs_of(store, ledger, "campaign")
    assert parent.data.tags["certified"] == "no"
    prove(ledger, (2.0, 2.1, 1.9, 2.0), look=2)
    prove(ledger, (2.0, 2.1, 1.9, 2.0), on="lander")
    recorded(ledger, store)
    (parent,) = runs_of(store, ledger, "campaign")
    found = points_of(store, parent)
    assert parent.data.tags["certified"] == "yes"
    assert [(step, round(value, 6)) for step, _, value in found["certificate/gain"]] == [(0, 0.0), (1, 1.0)]
    assert parent.data.metrics["certificate/low"] > 0
    assert round(parent.data.metrics["transfer/lander/gain"], 6) == 1.0
    assert "trial 1 certified" in parent.data.tags["mlflow.note.content"]
    assert runs_of(store, ledger)[1].data.tags["level"] == "certified"


def test_links_land_on_the_trials_best_first(ledger: Ledger, store: Store) -> None:
    night(ledger, 3.0)
    urls = recorded(ledger, store).urls
    assert urls["command"] == "nightshift up"
    page, _, query = urls["path"].partition("?")
    (run,) = runs_of(store, ledger)
    assert page == f"/#/experiments/{run.info.experiment_id}/runs"
    asked = parse_qs(query)
    assert (asked["orderByKey"], asked["orderByAsc"]) == (["metrics.`loss`"], ["true"])
    found = client_of(store).search_runs([run.info.experiment_id], asked["searchFilter"][0])
    assert [one.info.run_id for one in found] == [run.info.run_id]


# How MLflow is found, and that what the user has set stays as it is.


def test_what_is_stated_goes_before_the_environment_and_that_before_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = locate(None, tmp_path)
    assert own == Store(f"sqlite:///{tmp_path}/mlflow.db", tmp_path) and str(own) == "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:a@b@team.example.org/mlflow/")
    theirs = locate(None, tmp_path)
    assert theirs == Store("https://me:a@b@team.example.org/mlflow", tmp_path)
    assert str(theirs) == "https://team.example.org/mlflow", "without its password"
    assert locate("http://localhost:5000", tmp_path) == Store("http://localhost:5000", tmp_path)
    assert locate("off", tmp_path) is None
    for stated in ("./mlruns", "file:///tmp/mlruns", "sqlite:///:memory:", "sqlite://mlflow.db"):  # which keep nothing
        with pytest.raises(Refused, match="sqlite:////"):
            locate(stated, tmp_path)


def test_a_client_leaves_the_environment_as_another_thread_is_copying_it(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/mlflow.db", tmp_path).client():
        copying = iter(os.environ.items())
        next(copying)

    assert not dict(copying).get("MLFLOW_TRACKING_URI")


# What MLflow is told of a trial where its own program wrote it: nothing there is believed.


def written(folder: Path, *lines: object) -> Path:
    path = folder / "progress.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def report(step: int | None = 1, elapsed: float | None = 1.0, **metrics: Any) -> dict[str, Any]:
    stated = {"step": step, "elapsed": elapsed}
    return {**{name: value for name, value in stated.items() if value is not None}, "metrics": metrics}


def test_lines_that_are_no_reports_and_values_that_are_no_numbers_are_passed_over(tmp_path: Path) -> None:
    lines = [
        "\n",
        "not json\n",
        "[1]\n",
        '{"metrics": 3}\n',
        "[" * 100_000 + "\n",
        report(-1, a=1.0),
        report(10**400, a=1.0),
        report(b=float("nan"), c=float("inf"), d="text", e=True, f=None, g=10**400),
    ]
    path = written(tmp_path, *lines, report(7, 2.0, a=3.0), '{"step": 8, "metrics": {"a": 4')
    assert curves(path, 1000) == [MetricPoint("train/a", 3.0, 3000, 7)]
    (tmp_path / "link.jsonl").symlink_to(path)
    assert curves(tmp_path / "link.jsonl", 1000) == [], "no link is followed"


def test_a_long_curve_is_thinned_and_keeps_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, *(report(step, a=float(step)) for step in range(1001)))
    steps = [point.step for point in curves(path, 0)]
    assert len(steps) <= trial_run.CURVE_POINTS and steps[-1] == 1000
    assert {after - before for before, after in pairwise(steps)} == {6}
