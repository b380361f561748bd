"""The MLflow server of `nightshift up`, on the home's own database and artifacts: started if it does not run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from flows.server.server_process import PATIENCE_SECONDS
from tasks.system.daemon import Daemon, address, answers, serve
from tasks.system.login import make_login
from tasks.tracking.connection import SETTINGS, make_database

FIRST_PORT = 5000
LIGHT = {
    # Its job runner is eight processes that we do not use; with litellm installed it can deadlock at the start.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # into its log, for each file that is served
}


def start(home: Path, auth: bool, still: Callable[[str], None] | None = None) -> None:
    """Start it and wait until it answers, unless it runs already and asks for a login as it should.

    Args:
        still: Told the address while it starts (tasks.system.daemon.serve).

    Raises:
        Refused: it does not start; of a database of another version the log has MLflow's own message.
    """
    mlflow, login = Daemon(home / ".prefect", "mlflow"), make_login(home) if auth else None
    note = mlflow.living()
    if note and note.auth == auth and answers(note.url, PATIENCE_SECONDS, login):
        return
    mlflow.end()
    os.environ.update({name: os.environ.get(name, value) for name, value in SETTINGS.items()})
    make_database(home / "mlflow.db")
    # Variables about another MLflow server are not for this one.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "_MLFLOW_"))}
    environment = {**inherited, **SETTINGS, **LIGHT}

    def launch(port: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "flows.server.mlflow_app", str(home), str(port)]
        command += [] if auth else ["--no-auth"]
        return mlflow.launch(command, environment, address(port), auth=auth, stays=True)

    serve(mlflow, FIRST_PORT, launch, login=login, still=still)
