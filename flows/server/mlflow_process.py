"""The MLflow server of `nightshift up`: `mlflow server` with its own login, on the home's database and artifacts."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from tasks.system.daemon import HOST, Daemon, Note, address, answers
from tasks.system.login import make_login, write_private
from tasks.tracking.connection import SETTINGS, make_database

FIRST_PORT = 5000
PATIENCE_SECONDS = 20.0
QUIET = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Its job runner is eight processes that we do not use; with litellm installed it can deadlock at the start.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # into its log, for each file that is served
}
CONFIG = """\
[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{database}
admin_username = {user}
admin_password = {password}
"""


def start(home: Path) -> Note:
    """The running server, or one that is started. Refused: another program has the port, or it does not start."""
    mlflow = Daemon(home / ".prefect", "mlflow")
    note = mlflow.living()
    if note and answers(note.url, PATIENCE_SECONDS):
        return note
    mlflow.end()
    os.environ.update({name: os.environ.get(name, value) for name, value in SETTINGS.items()})
    make_database(home / "mlflow.db")
    port = mlflow.port(FIRST_PORT, stays=True)
    names = [f"{host}:{port}" for host in (HOST, "localhost")]
    command = [
        sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", HOST, "--port", str(port),
        "--workers", "1", "--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}",
        "--artifacts-destination", str(home / "artifacts"), "--allowed-hosts", ",".join(names),
        "--cors-allowed-origins", ",".join(f"http://{name}" for name in names),
    ]  # fmt: skip
    # Variables about another MLflow server are not for this one.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "_MLFLOW_"))}
    config, key = str(write_config(home)), secrets.token_hex(16)
    login = {"MLFLOW_AUTH_CONFIG_PATH": config, "MLFLOW_FLASK_SERVER_SECRET_KEY": key}
    environment = {**inherited, **SETTINGS, **QUIET, **login}
    note = mlflow.start(command, environment, port, address(port), stays=True)
    mlflow.remember(port)
    return note


def write_config(home: Path) -> Path:
    """The file that has the login; MLflow reads the password from it when it makes its database of users."""
    path, database = home / ".prefect/mlflow-auth.ini", home / ".prefect/mlflow-auth.db"
    user, _, password = make_login(home).partition(":")
    text = CONFIG.format(database=database, user=user, password=password)
    if not path.exists() or path.read_text() != text:
        database.unlink(missing_ok=True)  # it has another password
        write_private(path, text)
    return path
