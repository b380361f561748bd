"""How MLflow is found, and that what the user has set stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from environments.plugins import Refused
from tasks.tracking.connection import Store, locate


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
    for stated in ("./mlruns", "file:///tmp/mlruns", "sqlite:///:memory:"):  # which keep nothing
        with pytest.raises(Refused, match="sqlite:////"):
            locate(stated, tmp_path)


def test_a_client_leaves_the_environment_as_another_thread_is_copying_it(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/mlflow.db", tmp_path).client():
        copying = iter(os.environ.items())
        next(copying)

    assert not dict(copying).get("MLFLOW_TRACKING_URI")
