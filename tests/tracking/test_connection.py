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
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert locate(None, tmp_path) == Store(f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://team.example.org/mlflow/")
    assert locate(None, tmp_path) == Store("https://team.example.org/mlflow", tmp_path)
    assert locate("http://localhost:5000", tmp_path) == Store("http://localhost:5000", tmp_path)
    assert locate("off", tmp_path) is None


@pytest.mark.parametrize("stated", ["./mlruns", "file:///tmp/mlruns", "sqlite:///:memory:"])
def test_what_keeps_nothing_is_refused_with_the_remedy(stated: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="sqlite:////"):
        locate(stated, tmp_path)


@pytest.mark.parametrize(
    ("address", "shown"),
    [("https://me:a@b@host:5000/x", "https://host:5000/x"), ("http://host", "http://host"), ("", "mlflow.db")],
)
def test_a_store_is_shown_without_its_password_and_the_homes_own_by_its_name(
    address: str, shown: str, tmp_path: Path
) -> None:
    store = locate(address or f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    assert str(store) == shown and "a@b" not in str(store)


def test_a_client_leaves_the_environment_as_another_thread_is_copying_it(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/mlflow.db", tmp_path).client():
        copying = iter(os.environ.items())
        next(copying)

    assert not dict(copying).get("MLFLOW_TRACKING_URI")
