"""A certified champion as a model of MLflow: loaded by `mlflow.pyfunc.load_model`, and run in the sandbox."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from environments.plugins import Refused
from flows.engine import certifying
from tasks.stats.certificate import Certificate
from tasks.store.ledger import Ledger
from tasks.tracking import champion_model, sync
from tasks.tracking.connection import Store
from tests.support.champions import cart
from tests.support.histories import certified
from tests.support.ledgers import created, filled, keep, stored
from tests.support.mlflow_records import artifacts_of, client_of, runs_of

MODEL = "nightshift.cart"


def proof(*fresh: float) -> Certificate:
    return certified(1, fresh or (9.0, 9.1, 9.2, 9.3), (1.0, 1.1, 1.2, 1.3))


def register(store: Store, ledger: Ledger, certificate: Certificate | None = None) -> str:
    assert sync.sync(ledger, store, "finished").problem == ""
    run, champion = runs_of(store, ledger)[-1], ledger.history()[-1]
    with store.client() as client:
        return champion_model.register(client, ledger, certificate or proof(), champion, run)


def load(store: Store) -> Any:
    """The model as a user loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow's own types, when it is imported
        import mlflow.pyfunc

    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("MLFLOW_TRACKING_URI", store.uri)
        return mlflow.pyfunc.load_model(f"models:/{MODEL}@champion")


def described(store: Store, said: str) -> str:
    """The description of the version of which that was said."""
    name, version = said.partition(",")[0].split(" version ")
    return str(client_of(store).get_model_version(name, version).description)


ROWS = np.array([[0.0, 0.0, 0.2, 0.0], [0.0, 0.0, -0.2, 0.0], [1.0, 0.0, 0.1, 0.5]])


def test_a_loaded_champion_answers_rows_of_observations_and_without_a_sandbox_it_is_not_loaded(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    assert register(store, cart(tmp_path)) == f"{MODEL} version 1, @champion"
    model = load(store)
    for given in (ROWS, ROWS.astype(np.float32), ROWS.tolist(), pd.DataFrame(ROWS)):
        answers = model.predict(given)
        assert (answers.tolist(), answers.dtype) == ([1, 0, 1], np.int64)
    monkeypatch.setattr("tasks.sandbox.isolation.choose", lambda asked: "none")
    with pytest.raises(Exception, match="no sandbox"):
        load(store)


def test_a_certified_champion_is_registered_once_and_its_folder_is_its_runs(store: Store, tmp_path: Path) -> None:
    ledger = cart(tmp_path)
    assert sync.sync(ledger, store, "finished").problem == ""
    client = client_of(store)
    assert client.search_model_versions(f"name = '{MODEL}'") == [], "it is not certified"
    certifying.store(ledger, proof())
    for state in ("running", "finished"):
        assert sync.sync(ledger, store, state).problem == ""
    (_, run), (parent,) = runs_of(store, ledger), runs_of(store, ledger, "campaign")
    assert parent.data.tags["model"] == f"{MODEL} version 1, @champion"
    assert "MLmodel" in str(artifacts_of(store, run.info.run_id, "model"))
    (version,) = client.search_model_versions(f"name = '{MODEL}'")
    assert (version.run_id, version.tags["fresh_mean"]) == (run.info.run_id, repr(9.15))


def test_the_alias_never_moves_to_a_worse_model(store: Store, tmp_path: Path) -> None:
    nights = {"first": (5.0, 5.1, 5.2, 5.3), "worse": (4.0, 4.1, 4.2, 4.3), "better": (6.0, 6.1, 6.2, 6.3)}
    said = {name: register(store, cart(tmp_path, name=name), proof(*fresh)) for name, fresh in nights.items()}
    assert said["worse"] == f"{MODEL} version 2, @champion stays at version 1, with 5.15 against 4.15 on fresh runs"
    client = client_of(store)
    assert client.get_model_version_by_alias(MODEL, "champion").version == 3
    (tmp_path / "cart/program.md").write_text("another version")
    assert "another version of the environment" in register(store, cart(tmp_path, name="other"), proof(*[99.0] * 4))
    client.set_registered_model_alias(MODEL, "champion", "1")  # by a person
    register(store, Ledger.open("better"), proof(6.0))
    assert client.get_model_version_by_alias(MODEL, "champion").version == 1


def test_a_champion_that_answers_no_rows_is_files_only(store: Store, tmp_path: Path) -> None:
    ledger = created(tmp_path)
    *_, champion = stored(ledger, 3.0, 2.0)
    assert "gives it no observations" in described(store, register(store, ledger))
    other = created(tmp_path, "other")
    stored(other, 3.0, 2.0)
    filled(other, (replace(champion, runs=(replace(champion.runs[0], checkpoint=None),)),))
    assert "as files: it left no checkpoint" in described(store, register(store, other))


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


def test_red_team_a_malicious_pickle_goes_off_in_the_sandbox_alone(store: Store, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    register(store, cart(tmp_path, BOMB, {"policy.pkl": bomb(canary)}))
    model = load(store)
    assert not canary.exists()
    assert model.predict(ROWS).tolist() == [0, 0, 0]
    assert "hit a wall" in model._model_impl.place.judge_log.read_text(), "it went off, where it could do nothing"
    assert not canary.exists()
    subprocess.run([sys.executable, "-c", f"import pickle; pickle.loads({bomb(canary)!r})"], check=True)
    assert canary.exists(), "outside of the sandbox it would have worked"


def test_red_team_a_checkpoint_that_calls_itself_a_model_is_not_uploaded_as_one(store: Store, tmp_path: Path) -> None:
    ledger, evil = created(tmp_path), b"flavors:\n  python_function:\n    loader_module: evil\n"
    keep(ledger, 1.0, {"x": 1.0}, {"policy.pt": b"weights", "MLmodel": evil, "nested/mlmodel": evil})
    assert sync.sync(ledger, store, "finished").problem == ""
    (run,) = runs_of(store, ledger)
    assert artifacts_of(store, run.info.run_id, "out") == {"out/policy.pt"}
    assert "'MLmodel': MLflow would run the code" in run.data.tags["checkpoint"]


def test_red_team_files_that_were_changed_in_the_store_are_not_run(store: Store, tmp_path: Path) -> None:
    register(store, cart(tmp_path))
    client = client_of(store)
    version = client.get_model_version(MODEL, "1")
    place = Path(client.get_model_version_download_uri(version.name, "1").removeprefix("file://"))
    config, secret = place / "workspace" / "config.json", tmp_path / "secret.json"
    secret.write_text(config.read_text())
    config.unlink()
    config.symlink_to(secret)
    with pytest.raises(Refused, match=r"config\.json"):  # it is not there for the program
        load(store).predict(ROWS)
    (place / "workspace" / "train.py").write_text("print('mine')")
    with pytest.raises(Refused, match="has changed"):
        load(store)
