"""A certified champion as a model of MLflow: loaded by `mlflow.pyfunc.load_model`, and run in the sandbox."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.serving.loaded import CannotPredict
from tasks.tracking.client import CampaignRecord, Mlflow, TrialFiles
from tasks.tracking.logged_model import Champion
from tests.support.champions import TILT, cart, filed, talker
from tests.support.mlflow_records import BEGIN, artifacts_of, client_of, make_files, make_trial, runs_of
from tests.tracking.test_certificates import certificate


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Mlflow:
    """One sqlite store for the module."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_mlflow, home)
    return Mlflow(f"sqlite:///{home}/mlflow.db", home)


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> CampaignRecord:
    name = request.node.name[:40].replace("_", "-")
    return CampaignRecord("night.1", f"id-{name}", name, "return/mean", True, None, BEGIN, {})


def register(store: Mlflow, campaign: CampaignRecord, champion: Champion) -> str:
    files = TrialFiles(champion.place.path)
    run_id = store.log_trial(campaign, champion.trial, files)
    return store.register(campaign, certificate(environment=campaign.environment), champion, run_id)


def load(store: Mlflow, campaign: CampaignRecord) -> Any:
    """The model as a user loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow's own types, when it is imported
        import mlflow.pyfunc

    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("MLFLOW_TRACKING_URI", store.uri)
        return mlflow.pyfunc.load_model(f"models:/nightshift.{campaign.environment}@champion")


ROWS = np.array([[0.0, 0.0, 0.2, 0.0], [0.0, 0.0, -0.2, 0.0], [1.0, 0.0, 0.1, 0.5]])


def test_a_loaded_champion_answers_rows_of_observations(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    import pandas as pd

    told = register(store, campaign, cart(tmp_path))
    assert told == f"nightshift.{campaign.environment} version 1"
    model = load(store, campaign)
    for given in (ROWS, ROWS.astype(np.float32), ROWS.tolist(), pd.DataFrame(ROWS)):
        answers = model.predict(given)
        assert (answers.tolist(), answers.dtype) == ([1, 0, 1], np.int64)
    assert model.predict(model.input_example).tolist() == [0]
    many = np.tile(ROWS, (700, 1))  # more than one frame holds
    assert np.array_equal(model.predict(many), np.tile([1, 0, 1], 700))


def test_rows_that_are_no_observations_are_refused_before_anything_starts(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    register(store, campaign, cart(tmp_path))
    model = load(store, campaign)
    for given, why in ((np.full((1, 4), np.nan), "NaN"), (np.zeros((0, 4)), "no rows"), (np.zeros((2, 3)), "4 ")):
        with pytest.raises(Exception, match=why):
            model.predict(given)


def test_red_team_without_a_sandbox_no_model_is_loaded_whatever_it_says_of_itself(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(store, campaign, cart(tmp_path))
    monkeypatch.setattr("tasks.sandbox.isolation.choose", lambda asked: "none")
    with pytest.raises(Exception, match="no sandbox"):
        load(store, campaign)


def test_run_and_campaign_show_the_model_and_a_second_time_makes_no_other(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    champion = cart(tmp_path)
    for _ in range(2):
        register(Mlflow(store.uri, tmp_path), campaign, champion)
    client = client_of(store)
    (run,), (parent,) = runs_of(store, campaign), runs_of(store, campaign, "campaign")
    (model,) = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'")
    assert model.name == "night-1-0007"
    for shows in (run, parent):
        assert [one.model_id for one in shows.outputs.model_outputs] == [model.model_id]
    version = client.get_model_version(f"nightshift.{campaign.environment}", "1")
    assert (version.tags["model_id"], version.run_id) == (model.model_id, run.info.run_id)


@pytest.mark.slow
def test_an_upload_that_was_cut_short_is_completed(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    champion = cart(tmp_path)
    run_id = store.log_trial(campaign, champion.trial, TrialFiles(champion.place.path))
    client = client_of(store)
    half = client.create_logged_model(client.get_run(run_id).info.experiment_id, "half", run_id)
    register(store, campaign, champion)
    whole = client.get_logged_model(half.model_id)
    assert whole.status == "READY"
    assert load(store, campaign).predict(ROWS).tolist() == [1, 0, 1]


def test_a_champion_that_is_judged_by_a_command_is_files_only(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    champion = filed(tmp_path)
    make_files(tmp_path)
    assert register(store, campaign, champion).endswith("files only: it left no checkpoint")
    (run,) = champion.trial.runs
    judged = replace(champion.trial, number=8, runs=(replace(run, program="a", checkpoint="b"),))
    told = register(store, campaign, replace(champion, trial=judged))
    assert "judged by a command" in told
    with pytest.raises(Exception, match="python_function"):
        load(store, campaign)


@pytest.mark.slow
def test_a_language_model_answers_prompts(store: Mlflow, campaign: CampaignRecord, tmp_path: Path) -> None:
    import pandas as pd

    assert "files only" not in register(store, campaign, talker(tmp_path))
    model = load(store, campaign)
    assert (model.get_raw_model().place.path / "tokenizer" / "tokenizer.json").is_file()
    assert not list((model.get_raw_model().place.path / "tokenizer").glob("*.safetensors"))
    answers = model.predict(pd.DataFrame({"prompt": ["1+2", "3+4"]}), params={"temperature": 0.0, "max_tokens": 3})
    assert list(answers.columns) == ["completion"] and len(answers) == 2
    assert all(len(text) <= 3 for text in answers["completion"])
    again = model.predict([{"prompt": "1+2"}, {"prompt": "3+4"}], params={"temperature": 0.0, "max_tokens": 3})
    assert answers.equals(again)


# The documentation


@pytest.mark.slow
def test_the_code_of_the_notebook_page_runs(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(store, replace(campaign, environment="cartpole"), cart(tmp_path))
    page = (Path(__file__).parents[2] / "docs" / "notebooks.md").read_text()
    (code,) = [part.partition("```")[0] for part in page.split("```python")[1:] if "load_model" in part]
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(Path(store.uri.removeprefix("sqlite:///")).parent))
    program = code.replace("sqlite:///runs/mlflow.db", store.uri) + "\nprint(actions.tolist())\n"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["[1, 0]"], done.stderr


# What a trial leaves is never run outside of the sandbox

BOMB = """
import pickle
config = json.load(open("config.json"))
try:
    with open(os.path.join(config["out"], "policy.pkl"), "rb") as file:
        pickle.load(file)
except OSError as wall:
    print("the bomb hit a wall:", wall, file=sys.stderr)
ready()
for active, start, (column,) in frames():
    answer(*blank())
"""


def bomb(canary: Path) -> bytes:
    """A pickle that makes a folder when it is loaded."""
    return f"cos\nmkdir\n(V{canary}\ntR.".encode()


def test_red_team_a_malicious_pickle_goes_off_in_the_sandbox_alone(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    champion = cart(tmp_path, BOMB, {"policy.pkl": bomb(canary)})
    register(store, campaign, champion)
    model = load(store, campaign)
    assert not canary.exists()
    assert model.predict(ROWS).tolist() == [0, 0, 0]
    assert "hit a wall" in model.get_raw_model().place.judge_log.read_text(), "it went off, where it could do nothing"
    assert not canary.exists()
    subprocess.run([sys.executable, "-c", f"import pickle; pickle.loads({bomb(canary)!r})"], check=True)
    assert canary.exists(), "outside of the sandbox it would have worked"


def test_red_team_a_checkpoint_that_calls_itself_a_model_is_not_uploaded_as_one(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    files = make_files(tmp_path)
    (tmp_path / "out" / "nested").mkdir()
    for name in ("MLmodel", "nested/mlmodel"):
        (tmp_path / "out" / name).write_text("flavors:\n  python_function:\n    loader_module: evil\n")
    run_id = store.log_trial(campaign, make_trial(), files)
    assert artifacts_of(store, run_id, "out") == {"out/policy.pt", "out/progress.jsonl"}
    (run,) = runs_of(store, campaign)
    assert "'MLmodel': MLflow would run the code" in run.data.tags["checkpoint"]


def test_red_team_files_that_were_changed_in_the_store_are_not_run(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    register(store, campaign, cart(tmp_path))
    client = client_of(store)
    version = client.get_model_version(f"nightshift.{campaign.environment}", "1")
    place = Path(client.get_model_version_download_uri(version.name, "1").removeprefix("file://"))
    config, secret = place / "workspace" / "config.json", tmp_path / "secret.json"
    secret.write_text("{}")
    config.unlink()
    config.symlink_to(secret)
    with pytest.raises(CannotPredict, match=r"config\.json"):
        load(store, campaign)
    (place / "workspace" / "train.py").write_text("print('mine')")
    with pytest.raises(CannotPredict, match="has changed"):
        load(store, campaign)


@pytest.mark.slow
def test_a_program_that_answers_no_action_or_ends_is_told_with_its_words(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    register(store, campaign, cart(tmp_path, TILT.replace("(sign *", "7 + (sign *"), edit="a diff"))
    with pytest.raises(CannotPredict, match="no action"):
        load(store, campaign).predict(ROWS)


def test_champion_json_says_how_it_is_run_and_holds_no_question(
    store: Mlflow, campaign: CampaignRecord, tmp_path: Path
) -> None:
    register(store, campaign, cart(tmp_path))
    place = client_of(store).get_model_version_download_uri(f"nightshift.{campaign.environment}", "1")
    files = Path(place.removeprefix("file://"))
    assert {path.name for path in files.iterdir()} == {
        "MLmodel", "champion.json", "input_example.json", "out", "workspace",
    }  # fmt: skip
    told = json.loads((files / "champion.json").read_text())
    assert (told["judge"], told["settings"]["id"]) == ("control", "CartPole-v1")
    assert [leaf["dtype"] for leaf in (*told["observation"], *told["action"])] == ["<f4", "<i8"]
