"""What a campaign and its trials look like in MLflow, in a real sqlite store; and how the store is found."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import SecretStr

from environments.plugins import Refused
from tasks.system.daemon import Daemon, Note, identity
from tasks.tracking.client import (
    LIGHT,
    CampaignRecord,
    Mlflow,
    Tracker,
    TrialFiles,
    Unreachable,
    api_with_blocks,
    locate,
)
from tasks.tracking.connection import RecordRejected
from tasks.tracking.trial_run import trial_tags
from tasks.tracking.views import trials_view
from tasks.trial import History, VerdictKind
from tests.support.mlflow_records import BEGIN, artifacts_of, client_of, make_files, make_trial, points_of, runs_of

if TYPE_CHECKING:
    pass


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Iterator[Mlflow]:
    """One sqlite store for the module."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_mlflow, home)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PREFECT_API_URL", raising=False)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        tracker = locate(None, home)
        assert isinstance(tracker, Mlflow)
        yield tracker
        assert not list(Path.cwd().iterdir()), "MLflow left something in the working directory"


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> CampaignRecord:
    name = request.node.name[:40]
    return CampaignRecord(
        campaign="cartpole-1",
        campaign_id=f"id-{name}",
        environment="cartpole",
        metric="return/mean",
        higher_is_better=True,
        flow_run_id="a-flow-run",
        created=BEGIN,
        spec={"proposer": "tpe", "trials": "20"},
    )


# A trial in the store


def test_a_trial_is_a_run_below_its_campaign(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    parent = store.open_campaign(campaign)
    store.log_trial(campaign, make_trial(), make_files(tmp_path))
    (run,) = runs_of(store, campaign)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "cartpole-1-0007"
    assert (run.info.start_time, run.info.end_time) == ((BEGIN + 100) * 1000, (BEGIN + 115) * 1000)
    tags = {key: value for key, value in run.data.tags.items() if key != "mlflow.user"}
    assert tags == {
        "mlflow.parentRunId": parent,
        "mlflow.runName": "cartpole-1-0007",
        "mlflow.source.name": "nightshift",
        "mlflow.source.type": "LOCAL",
        "mlflow.note.content": "**keep** (provisional): beats 300 by 12.5\n\na smaller step",
        "kind": "trial",
        "environment": "cartpole",
        "campaign": "cartpole-1",
        "campaign_id": campaign.campaign_id,
        "idempotency_key": f"{campaign.campaign_id}/0007/1",
        "trial": "7",
        "attempt": "1",
        "proposer": "tpe",
        "verdict": "keep",
        "level": "provisional",
        "lineage.commit": "abc123",
        "prefect.flow_run_id": "a-flow-run",
        "checkpoint": "out/",
    }


def test_numbers_stay_numbers_as_parameters(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    store.log_trial(campaign, make_trial(), make_files(tmp_path))
    (run,) = runs_of(store, campaign)
    assert run.data.params == {
        "learning_rate": "0.0003",
        "clip": "0.2",
        "lanes": "8",
        "orthogonal": "True",
        "activation": "tanh",
    }


def test_the_objective_has_its_own_name_and_is_called_score(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    store.log_trial(campaign, make_trial(), make_files(tmp_path))
    (run,) = runs_of(store, campaign)
    once = {key: value for key, value in run.data.metrics.items() if not key.startswith("train/")}
    expected = {"return/mean": 312.5, "score": 312.5, "score/se": 1.5, "time/train": 12.0, "memory/peak_gb": 1.0}
    assert once == expected
    points = points_of(store, run)
    assert all(points[key] == [(0, (BEGIN + 115) * 1000, value)] for key, value in expected.items())


def test_curves_stand_against_environment_steps(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    store.log_trial(campaign, make_trial(), make_files(tmp_path))
    (run,) = runs_of(store, campaign)
    curve = points_of(store, run)["train/m/0"]
    assert len(curve) == 50
    assert curve[20] == (2000, (BEGIN + 102) * 1000, 20.0)


def test_config_diff_and_log_are_attached(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    run_id = store.log_trial(campaign, make_trial(kind="discard"), make_files(tmp_path))
    assert artifacts_of(store, run_id) == {"config.json", "diff.patch", "log.txt"}


def test_only_a_keep_uploads_its_checkpoint(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    (tmp_path / "out" / "model").mkdir()
    (tmp_path / "out" / "model" / "config.json").write_text("{}")
    run_id = store.log_trial(campaign, make_trial(), files)
    assert artifacts_of(store, run_id, "out") == {"out/policy.pt", "out/progress.jsonl", "out/model"}
    assert artifacts_of(store, run_id, "out/model") == {"out/model/config.json"}


def test_a_checkpoint_too_large_is_named_and_left(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make_files(tmp_path)
    with (tmp_path / "out" / "policy.pt").open("wb") as file:
        file.truncate(300_000_000)  # sparse: takes no room
    run_id = store.log_trial(campaign, make_trial(), files)
    (run,) = runs_of(store, campaign)
    assert run.data.tags["checkpoint"] == "not uploaded: out/ holds 300 MB, more than 200 MB"
    assert "out" not in artifacts_of(store, run_id)


def test_a_link_in_out_is_not_followed(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    (tmp_path / "secret").write_text("key")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "secret").write_text("key")
    (tmp_path / "out" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "out" / "folder").symlink_to(tmp_path / "folder")
    os.mkfifo(tmp_path / "out" / "pipe")
    run_id = store.log_trial(campaign, make_trial(), files)
    assert artifacts_of(store, run_id, "out") == {"out/policy.pt", "out/progress.jsonl"}


def test_files_go_below_the_home_whatever_the_working_directory(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    store.log_trial(campaign, make_trial(), make_files(tmp_path))
    (run,) = runs_of(store, campaign)
    home = Path(store.uri.removeprefix("sqlite:///")).parent
    assert run.info.artifact_uri.startswith((home / "artifacts" / "cartpole").as_uri())


def test_a_trial_that_left_no_files_is_logged(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    run_id = store.log_trial(campaign, replace(make_trial(kind="crash"), runs=()), TrialFiles(tmp_path / "gone"))
    (run,) = runs_of(store, campaign)
    assert run.data.metrics == {}
    assert artifacts_of(store, run_id) == set()


# Logging again


def test_logging_a_trial_again_changes_nothing(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    first = store.log_trial(campaign, make_trial(), files)
    (before,) = runs_of(store, campaign)
    points = points_of(store, before)
    again = Mlflow(store.uri, tmp_path).log_trial(campaign, make_trial(), files)
    (after,) = runs_of(store, campaign)
    assert again == first
    assert after.data.tags == before.data.tags
    assert (after.info.status, after.info.end_time) == (before.info.status, before.info.end_time)
    assert points_of(store, after) == points
    assert sum(map(len, points.values())) == 4 * 50 + 5


def test_another_verdict_replaces_the_first(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    first = store.log_trial(campaign, make_trial(), files)
    assert store.log_trial(campaign, make_trial(kind="discard"), replace(files, commit=None)) == first
    (run,) = runs_of(store, campaign)
    assert run.data.tags["verdict"] == "discard"
    assert "level" not in run.data.tags
    assert "lineage.commit" not in run.data.tags
    assert run.data.tags["mlflow.note.content"].startswith("**discard**: ")


def test_a_run_with_another_score_is_replaced(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    first = store.log_trial(campaign, make_trial(value=312.5), files)
    second = store.log_trial(campaign, make_trial(value=250.0), files)
    (run,) = runs_of(store, campaign)
    assert first != second == run.info.run_id
    assert run.data.metrics["score"] == 250.0


def test_another_attempt_is_another_run(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    store.log_trial(campaign, make_trial(), files)
    store.log_trial(campaign, replace(make_trial(), attempt=2), files)
    assert {run.data.tags["attempt"] for run in runs_of(store, campaign)} == {"1", "2"}


def test_a_run_left_half_logged_is_completed(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    store.open_campaign(campaign)
    client = client_of(store)
    (parent,) = runs_of(store, campaign, "campaign")
    half = client.create_run(parent.info.experiment_id, tags=trial_tags(campaign, make_trial(), files))
    assert store.log_trial(campaign, make_trial(), files) == half.info.run_id
    (run,) = runs_of(store, campaign)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["score"] == 312.5


# Bad ends


def test_a_crash_is_a_failed_run_without_a_score(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    store.log_trial(campaign, make_trial(kind="crash", value=None), make_files(tmp_path))
    (run,) = runs_of(store, campaign)
    assert run.info.status == "FAILED"
    assert run.data.metrics.keys().isdisjoint({"score", "return/mean", "score/se"})
    assert run.data.metrics["time/train"] == 12.0


def test_a_crash_after_judging_hides_what_was_measured(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    files = make_files(tmp_path)
    store.log_trial(campaign, make_trial(), files)
    store.log_trial(campaign, make_trial(kind="crash"), files)
    (run,) = runs_of(store, campaign)
    assert (run.info.status, "score" in run.data.metrics) == ("FAILED", False)


def test_a_cancelled_trial_is_a_killed_run(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    store.log_trial(campaign, make_trial(kind="cancelled", value=None), make_files(tmp_path))
    (run,) = runs_of(store, campaign)
    assert run.info.status == "KILLED"


# The campaign's own run


def test_a_campaign_has_one_run_however_often_it_is_opened(store: Mlflow, campaign: CampaignRecord) -> None:
    first = store.open_campaign(campaign)
    store.close_campaign(campaign, "stopped", (), (), Path("gone"))
    assert runs_of(store, campaign, "campaign")[0].info.status == "KILLED"
    resumed = replace(campaign, flow_run_id="another", spec={"proposer": "tpe", "trials": "40", "hours": "8"})
    assert Mlflow(store.uri, store._store.home).open_campaign(resumed) == first
    (run,) = runs_of(store, campaign, "campaign")
    assert run.info.status == "RUNNING"
    assert run.data.params == {"proposer": "tpe", "trials": "20", "hours": "8"}
    assert (run.data.tags["spec.trials"], run.data.tags["prefect.flow_run_id"]) == ("40", "another")


def logged_night(store: Mlflow, campaign: CampaignRecord, folder: Path, *scores: float | None) -> History:
    """Trials logged one after the other, each kept that is better than all before it; None is a crash."""
    history: History = ()
    for number, value in enumerate(scores):
        better = value is not None and value > max((t.score.utility for t in history), default=0)
        kind: VerdictKind = "crash" if value is None else "keep" if better else "discard"
        trial = replace(make_trial(number, kind, value), order=number, wall_seconds=18.0 + number)
        history += (trial,)
        store.log_trial(campaign, trial, TrialFiles(folder / "gone"))
        store.log_progress(campaign, trial, history, ())
    return history


def marked(store: Mlflow, campaign: CampaignRecord) -> list[str]:
    """The trials that carry the champion's mark."""
    runs = runs_of(store, campaign)
    return [run.data.tags["trial"] for run in runs if run.data.tags.get("champion") == "*"]


def test_the_best_score_so_far_is_a_curve_over_trials(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    for _ in range(2):
        logged_night(store, campaign, tmp_path, 100.0, None, 150.0)
    (run,) = runs_of(store, campaign, "campaign")
    points = points_of(store, run)
    decided = [int((BEGIN + 118 + number) * 1000) for number in range(3)]
    curve = zip(range(3), decided, [100.0, 100.0, 150.0], strict=True)
    assert points == {"champion/score": list(curve), "baseline/score": [(0, decided[0], 100.0)]}
    assert run.data.metrics["champion/score"] == 150.0
    assert run.data.tags["champion"] == "2"
    assert run.data.tags["mlflow.note.content"].startswith("**Champion: trial 2**, return/mean 150 against")


def test_the_champions_mark_moves_with_the_champion(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    logged_night(store, campaign, tmp_path, 100.0, 90.0)
    assert marked(store, campaign) == ["0"]
    history = logged_night(store, campaign, tmp_path, 100.0, 90.0, 150.0, None)
    assert marked(store, campaign) == ["2"]
    another_life = Mlflow(store.uri, tmp_path)
    another_life.log_progress(campaign, history[0], history, ())
    assert marked(store, campaign) == ["2"]


def test_a_mark_that_a_kill_left_behind_is_taken_away(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    history = logged_night(store, campaign, tmp_path, 100.0, 150.0)
    stale = next(run for run in runs_of(store, campaign) if run.data.tags["trial"] == "0")
    client_of(store).set_tag(stale.info.run_id, "champion", "*")
    Mlflow(store.uri, tmp_path).log_progress(campaign, history[1], history, ())
    assert marked(store, campaign) == ["1"]


def test_a_champion_that_waits_to_be_sent_is_marked_when_it_comes(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    first, second = (replace(make_trial(n, "keep", 100.0 + n), order=n) for n in range(2))
    for trial, expected in [(first, []), (second, ["1"])]:
        store.log_trial(campaign, trial, TrialFiles(tmp_path / "gone"))
        store.log_progress(campaign, trial, (first, second), ())
        assert marked(store, campaign) == expected


def test_a_champions_run_that_was_made_anew_is_marked_again(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    (trial,) = logged_night(store, campaign, tmp_path, 100.0)
    other = replace(trial, score=replace(trial.score, value=101.0))
    store.log_trial(campaign, other, TrialFiles(tmp_path / "gone"))
    store.log_progress(campaign, other, (other,), ())
    assert marked(store, campaign) == ["0"]


def test_a_closed_campaign_can_be_compared_with_others(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    for name in ("progress.png", "results.tsv", "spec.toml", "campaign.json"):
        (tmp_path / name).write_text(name)
    store.open_campaign(campaign)
    history = logged_night(store, campaign, tmp_path, 100.0, None, 150.0)
    for _ in range(2):
        Mlflow(store.uri, tmp_path).close_campaign(campaign, "finished", history, (), tmp_path)
    (run,) = runs_of(store, campaign, "campaign")
    assert (run.info.status, run.info.end_time) == ("FINISHED", int((BEGIN + 120) * 1000))
    assert artifacts_of(store, run.info.run_id) == {"progress.png", "results.tsv", "spec.toml"}
    points = points_of(store, run)
    assert len(points.pop("champion/score")) == 3
    assert {key: [(step, value) for step, _, value in found] for key, found in points.items()} == {
        "baseline/score": [(0, 100.0)],
        "gain": [(0, 50.0)],
        "trials": [(0, 2)],
        "crashes": [(0, 1)],
        "cancelled": [(0, 0)],
        "spared": [(0, 0)],
        "spared/kept": [(0, 0)],
        "hours": [(0, 0.0056)],
    }
    assert run.data.metrics["champion/score"] == 150.0
    assert "finished: 2 trials" in run.data.tags["mlflow.note.content"]


def test_a_campaign_that_goes_on_is_summed_up_anew(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    history = logged_night(store, campaign, tmp_path, 100.0, 90.0, 150.0)
    store.close_campaign(campaign, "stopped", history[:2], (), tmp_path)
    store.close_campaign(campaign, "finished", history, (), tmp_path)
    (run,) = runs_of(store, campaign, "campaign")
    assert (run.data.metrics["gain"], run.data.metrics["trials"]) == (50.0, 2)
    assert run.info.status == "FINISHED"


def test_files_that_cannot_be_uploaded_hold_back_neither_other_trials_nor_the_end(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    here = replace(campaign, environment="blocked")
    store.open_campaign(here)
    (store._store.home / "artifacts").mkdir(exist_ok=True)
    (store._store.home / "artifacts/blocked").touch()
    with pytest.raises(RecordRejected, match="Not a directory"):
        store.log_trial(here, make_trial(), make_files(tmp_path))
    (run,) = runs_of(store, here)
    assert run.data.metrics["score"] == 312.5
    with pytest.raises(RecordRejected, match="Not a directory"):
        store.close_campaign(here, "finished", (), (), tmp_path)
    (run,) = runs_of(store, here, "campaign")
    assert run.info.status == "FINISHED"


def test_a_campaign_without_a_single_trial_can_be_closed(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    store.close_campaign(campaign, "failed", (), (), tmp_path)
    (run,) = runs_of(store, campaign, "campaign")
    assert (run.info.status, run.data.metrics) == ("FAILED", {})


def test_a_run_deleted_in_the_user_interface_is_made_anew(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    (trial,) = logged_night(store, campaign, tmp_path, 100.0)
    client_of(store).delete_run(store.open_campaign(campaign))
    with pytest.raises(RecordRejected):
        store.log_progress(campaign, trial, (trial,), ())
    store.log_progress(campaign, trial, (trial,), ())
    assert len(runs_of(store, campaign, "campaign")) == 1


def test_a_deleted_experiment_is_not_brought_back(store: Mlflow, campaign: CampaignRecord) -> None:
    elsewhere = replace(campaign, environment="deleted")
    store.open_campaign(elsewhere)
    experiment = client_of(store).get_experiment_by_name("nightshift/deleted")
    assert experiment is not None
    client_of(store).delete_experiment(experiment.experiment_id)
    with pytest.raises(RecordRejected, match="mlflow experiments restore"):
        Mlflow(store.uri, store._store.home).open_campaign(elsewhere)


def test_a_locked_database_is_given_up_soon_and_used_when_free(
    store: Mlflow, campaign: CampaignRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.tracking.connection.PROBE_SECONDS", 0.5)
    store.open_campaign(campaign)
    trial = make_trial()
    with closing(sqlite3.connect(store.uri.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unreachable, match="database is locked"):
            store.log_progress(campaign, trial, (trial,), ())
    store.log_progress(campaign, trial, (trial,), ())


# Where to look


def test_without_a_server_the_command_that_starts_one_is_told(store: Mlflow, campaign: CampaignRecord) -> None:
    store.open_campaign(campaign)
    urls = store.urls(campaign)
    assert urls["command"] == f"{LIGHT} mlflow ui --backend-store-uri {store.uri} --port 5000"
    assert list(urls) == ["command", "path", "charts_path", "nights_path"]
    assert all(urls[which].startswith("/#/experiments/") for which in list(urls)[1:])


def test_every_page_that_a_link_opens_is_prepared(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    store.open_campaign(campaign)
    for which, name in [("path", "cartpole-1: trials"), ("nights_path", "nights")]:
        link = urlsplit(store.urls(campaign)[which].removeprefix("/#"))
        experiment = client_of(store).get_experiment(link.path.split("/")[2])
        (key,) = parse_qs(link.query)["viewStateShareKey"]
        assert json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])["name"] == name


def test_curves_get_a_chart_once_a_trial_has_them(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    def view() -> str:
        experiment = client_of(store).get_experiment_by_name("nightshift/cartpole")
        assert experiment is not None
        return str(experiment.tags[trials_view(campaign).tag[0]])

    store.open_campaign(campaign)
    assert view() == trials_view(campaign).tag[1]
    store.log_trial(campaign, make_trial(), make_files(tmp_path, metrics=1))
    (run,) = runs_of(store, campaign)
    assert view() == trials_view(campaign, run.data.metrics).tag[1] != trials_view(campaign).tag[1]


# Where it goes


def test_off_means_that_nothing_is_recorded(campaign: CampaignRecord, tmp_path: Path) -> None:
    tracker = locate("off", tmp_path)
    assert type(tracker) is Tracker
    tracker.log_trial(campaign, make_trial(), TrialFiles(tmp_path))
    assert tracker.urls(campaign) == {}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stated", ["file:///tmp/runs", "runs", "./runs", "/tmp/runs", "sqlite", "ftp://host"])
def test_a_plain_folder_is_refused_with_the_remedy(stated: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"'{stated}'.*sqlite:///{tmp_path}/mlflow.db"):
        locate(stated, tmp_path)


@pytest.mark.parametrize("stated", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_database_needs_a_file(stated: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="name a file"):
        locate(stated, tmp_path)


@pytest.mark.parametrize("uri", ["mysql://me@host/db", "mssql+nonesuch://host/db", "postgresql+nonesuch://host/db"])
def test_a_database_needs_its_driver(uri: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"the driver (MySQLdb|nonesuch) is not installed: "):
        locate(uri, tmp_path)


def test_the_block_may_be_in_the_homes_own_server_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert api_with_blocks(tmp_path) is None
    own = Daemon(tmp_path / ".prefect", "server")
    own.write(Note("http://127.0.0.1:4200/api", os.getpid(), 0.0, identity(os.getpid())))
    assert api_with_blocks(tmp_path) == "http://127.0.0.1:4200/api"
    monkeypatch.setenv("PREFECT_API_URL", "http://team/api")
    assert api_with_blocks(tmp_path) == "http://team/api"


def test_a_store_is_known_by_its_address_without_a_login_and_the_homes_own_by_its_name(tmp_path: Path) -> None:
    assert locate(f"sqlite:///{tmp_path}/mlflow.db", tmp_path).store == "mlflow.db"
    assert locate(f"sqlite:///{tmp_path}/other.db", tmp_path).store == f"sqlite:///{tmp_path}/other.db"
    assert locate("https://me:secret@host/x", tmp_path).store == "https://host/x"


def test_what_is_stated_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    default = locate(None, tmp_path / "home")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000/")
    variable, stated = locate(None, tmp_path), locate("sqlite:///mine.db", tmp_path)
    uris = [tracker.uri for tracker in (default, variable, stated) if isinstance(tracker, Mlflow)]
    assert uris == [f"sqlite:///{tmp_path}/home/mlflow.db", "http://127.0.0.1:5000", f"sqlite:///{tmp_path}/mine.db"]


def test_locating_needs_neither_mlflow_nor_prefect(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tasks.tracking.client import locate; locate(None, Path('home'));"
        "print(sorted({'mlflow', 'prefect', 'sqlalchemy', 'filelock'} & set(sys.modules)))"
    )
    environment = {key: v for key, v in os.environ.items() if key not in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_dead_prefect_server_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{listener.getsockname()[1]}/api")
    with pytest.raises(ConnectionError, match="PREFECT_API_URL="):
        locate(None, tmp_path)


def test_the_block_describes_every_field_and_hides_its_secrets() -> None:
    from blocks.tracking import Tracking

    assert Tracking.get_block_type_slug() == "nightshift-tracking"
    assert all((field.description or "").endswith(".") for field in Tracking.model_fields.values())
    assert "hush" not in repr(Tracking(uri="http://host", username="me", password=SecretStr("hush")))


@pytest.mark.parametrize("identity", [{"username": "me"}, {"username": "me", "password": "x", "token": "y"}])
def test_a_block_with_half_or_two_identities_is_refused(identity: dict[str, Any]) -> None:
    from blocks.tracking import Tracking

    with pytest.raises(ValueError, match="password"):
        Tracking(uri="http://host", **identity)
