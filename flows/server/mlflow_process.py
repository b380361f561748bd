"""The MLflow server of `nightshift up`: `mlflow server` with its own login, on the home's database and artifacts."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from tasks.system.daemon import HOST, Daemon
from tasks.system.login import login_file, make_login
from tasks.tracking.connection import SETTINGS, make_database

FIRST_PORT = 5000
QUIET = {
    # Its job runner is eight processes that we do not use; with litellm installed it can deadlock at the start.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # into its log, for each file that is served
}


def start(home: Path) -> str:
    """Address of the running server, or of one that is started. Refused: it does not start."""
    return Daemon(home / ".prefect", "mlflow").serve(FIRST_PORT, "", lambda port: _launch(home, port))


def _launch(home: Path, port: int) -> tuple[list[str], Mapping[str, str]]:
    """Its command and its variables: without those about another MLflow server."""
    os.environ.update({name: os.environ.get(name, value) for name, value in SETTINGS.items()})
    make_database(home / "mlflow.db")
    names = [f"{host}:{port}" for host in (HOST, "localhost")]
    command = [
        sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", HOST, "--port", str(port),
        "--workers", "1", "--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}",
        "--artifacts-destination", str(home / "artifacts"), "--allowed-hosts", ",".join(names),
        "--cors-allowed-origins", ",".join(f"http://{name}" for name in names),
    ]  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "_MLFLOW_"))}
    users = home / "basic_auth.db"  # where MLflow has it by itself
    user, _, password = make_login(home).partition(":")
    login = {"MLFLOW_AUTH_ADMIN_USERNAME": user, "MLFLOW_AUTH_ADMIN_PASSWORD": password}
    if users.exists() and users.stat().st_mtime < login_file(home).stat().st_mtime:
        users.unlink()  # it has another password
    key = {"MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(16)}
    return command, {**inherited, **SETTINGS, **QUIET, **login, **key}
