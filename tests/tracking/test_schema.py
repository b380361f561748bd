"""An sqlite store of another version of MLflow is refused with the remedy, before anything opens it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.cli.doctor import services
from tasks.tracking import schema
from tasks.tracking.client import CampaignRecord, locate

CAMPAIGN = CampaignRecord("night-1", "one-id", "toy", "return/mean", True, None, 1_700_000_000.0, {})
OLD = "cc1f77228345"
"""A revision of MLflow 1.x: `change param value length to 500`."""
MAKE_OLD = """
import sys
from alembic import command
from sqlalchemy import create_engine
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base
url, revision = sys.argv[1:]
engine = create_engine(url)
Base.metadata.create_all(engine)
config = _get_alembic_config(url)
with engine.begin() as connection:
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
"""
"""Makes a store as MLflow of that revision did: its first tables, and its own migrations up to there."""


def stamp(database: Path, revision: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def test_the_newest_revision_is_the_one_that_mlflow_makes(empty_mlflow: Path, tmp_path: Path) -> None:
    known, newest = schema.revisions()
    assert schema.revision(empty_mlflow) == newest
    assert newest in known and OLD in known
    assert schema.mismatch(empty_mlflow) is None
    assert schema.mismatch(tmp_path / "none.db") is None


def test_an_older_store_is_refused_with_the_command(
    empty_mlflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a home"
    home.mkdir()
    database = Path(shutil.copy(empty_mlflow, home / "mlflow.db"))
    stamp(database, OLD)
    command = f"mlflow db upgrade 'sqlite:///{database}'"
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(Refused, match="older") as refused:
        locate(None, home)
    assert command in str(refused.value)
    check = services.mlflow(home)
    assert (check.state, command in str(check.remedy)) == ("bad", True)


def test_a_newer_store_is_refused(empty_mlflow: Path, tmp_path: Path) -> None:
    database = Path(shutil.copy(empty_mlflow, tmp_path))
    stamp(database, "0123456789ab")
    with pytest.raises(Refused, match=r"newer MLflow.*0123456789ab.*--tracking"):
        locate(f"sqlite:///{database}", tmp_path)


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100])
def test_a_file_that_is_no_store_is_left_to_those_who_open_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mlflow.db").write_bytes(content)
    assert schema.mismatch(tmp_path / "mlflow.db") is None


@pytest.mark.slow
def test_the_command_upgrades_a_store_of_old_and_campaigns_are_recorded_in_it(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    subprocess.run([sys.executable, "-c", MAKE_OLD, f"sqlite:///{database}", OLD], check=True, capture_output=True)
    with pytest.raises(Refused) as refused:
        locate(f"sqlite:///{database}", tmp_path)
    command = str(refused.value).split("`")[1].split()
    binary = Path(sys.executable).with_name(command[0])
    subprocess.run([binary, *command[1:]], check=True, capture_output=True)
    assert locate(f"sqlite:///{database}", tmp_path).open_campaign(CAMPAIGN)
