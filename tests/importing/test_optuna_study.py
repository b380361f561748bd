"""Optuna studies: space, baseline, direction and trials out of a storage that stays as it is."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from environments.plugins import Refused
from environments.space import Choice, Float, Int
from tasks.importing import imported
from tests.importing.test_importers import brought, run
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial
else:
    optuna = LazyModule("optuna")

PARAMS = {"lr": 1e-3, "depth": 3, "width": 128, "dropout": 0.2, "kind": "adam", "seen": 7, "seed": 2}


def distributions() -> dict[str, BaseDistribution]:
    made = optuna.distributions
    return {
        "lr": made.FloatDistribution(1e-5, 1e-1, log=True),
        "depth": made.IntDistribution(1, 9),
        "width": made.IntDistribution(64, 256, step=64),
        "dropout": made.FloatDistribution(0.0, 0.5, step=0.1),
        "kind": made.CategoricalDistribution(("sgd", "adam", None)),
        "seen": made.IntDistribution(7, 7),
        "seed": made.IntDistribution(0, 5),
    }


def trial(value: float | None, state: str = "COMPLETE", **changed: object) -> FrozenTrial:
    params = {**PARAMS, **changed}
    of_state = optuna.trial.TrialState[state]
    made = optuna.trial.create_trial(state=of_state, value=value, params=params, distributions=distributions())
    if made.datetime_start is not None:
        made.datetime_complete = made.datetime_start + timedelta(seconds=40)
    return made


def study(folder: Path) -> str:
    place = str(folder / "journal.log")
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(place))
    made = optuna.create_study(study_name="night", storage=storage, direction="maximize")
    made.add_trials([trial(0.5), trial(0.9, lr=2e-2, kind="sgd"), trial(0.7, kind=None)])
    made.add_trials([trial(None, "FAIL", lr=5e-2), trial(0.4, "PRUNED"), trial(math.inf, lr=3e-2)])
    return place


def test_every_distribution_becomes_a_parameter_the_best_trial_the_baseline_and_an_objective_runs_unchanged(
    tmp_path: Path,
) -> None:
    environment, made = brought(study(tmp_path), tmp_path / "here")
    assert environment.space == {
        "lr": Float(low=1e-5, high=0.1, log=True, default=2e-2),
        "depth": Int(low=1, high=9, default=3),
        "width": Choice(values=(64, 128, 192, 256), default=128),
        "dropout": Choice(values=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5), default=0.2),
        "kind": Choice(values=("sgd", "adam", "null"), default="sgd"),
    }
    assert environment.fixed == {"seen": 7}
    assert (environment.direction, environment.budget_seconds, made.name) == ("maximize", 120, "night")
    history = [json.loads(line) for line in str(made.files["history.jsonl"]).splitlines()]
    assert [one["score"] for one in history] == [0.5, 0.9, 0.7, None, None]
    assert history[1]["params"]["lr"] == 2e-2 and history[2]["params"]["kind"] == "null"
    assert any("1 pruned" in term.theirs for term in made.left)
    assert {path.name for path in tmp_path.iterdir()} == {"journal.log", "here"}

    (tmp_path / "here/repository/objective.py").write_text(
        "def objective(trial):\n"
        "    assert trial.suggest_categorical('kind', ['sgd', 'adam', None]) is None\n"
        "    x = trial.suggest_float('lr', 1e-5, 1e-1, log=True)\n"
        "    assert trial.suggest_int('seed', 0, 5) == 7\n"
        "    trial.report(1.0, step=1)\n"
        "    return 100 * x, float(trial.suggest_int('depth', 1, 9))\n"
    )
    done, score = run(environment, tmp_path / "0000", lr=1e-3, kind="null")
    assert (score.value, score.also) == (0.1, {"value_2": 3.0}), done.error
    reports = [json.loads(line) for line in (tmp_path / "0000/out/progress.jsonl").read_text().splitlines()]
    assert reports[0] == {"ready": True} and reports[1]["metrics"] == {"value": 1.0}


def test_an_sqlite_storage_is_read_and_not_written(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    made = optuna.create_study(study_name="one", storage=f"sqlite:///{file}")
    made.add_trial(trial(1.0))
    optuna.create_study(study_name="two", storage=f"sqlite:///{file}")
    file.chmod(0o444)
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    for place in (f"{file}#one", f"sqlite:///{file}#one"):
        assert imported(place).name == "one"
    for place in (str(file), f"{file}#three"):
        with pytest.raises(Refused, match="name one of its studies, behind #: one, two"):
            imported(place)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.db"]


def test_what_is_no_study_is_refused_and_no_password_shown(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE things (name TEXT)")
    login = "postgresql+nodriver://me:hunter2@127.0.0.1:1/studies"
    for place in (str(tmp_path / "other.db"), f"sqlite:///{tmp_path}/missing.db", login):
        with pytest.raises(Refused, match="Optuna cannot read it") as refused:
            imported(place)
        assert "hunter2" not in str(refused.value)
    assert not (tmp_path / "missing.db").exists()
