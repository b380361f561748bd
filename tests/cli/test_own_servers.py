"""What status and `nightshift up` say of our own servers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from flows.cli.services import login_steps
from tasks.system.daemon import Daemon, Note, identity, own_servers
from tasks.system.login import make_login

PREFECT, MLFLOW = "http://127.0.0.1:4200/api", "http://127.0.0.1:5000"


def run_both(home: Path) -> None:
    """Have this process stand for both servers."""
    (home / ".prefect").mkdir(parents=True, exist_ok=True)
    for name, url in (("server", PREFECT), ("mlflow", MLFLOW)):
        note = Note(url, os.getpid(), identity(os.getpid()))
        Daemon(home / ".prefect", name).write(note)


def test_the_lines_set_what_prefect_and_mlflow_read_and_hold_no_password(tmp_path: Path) -> None:
    home = tmp_path / "a 'home'"
    run_both(home)
    user, _, password = make_login(home).partition(":")
    lines = [line for label, line in login_steps(own_servers(home)).items() if label != "login"]
    assert not any(password in line for line in lines)
    code = "; ".join(lines) + "; env"
    done = subprocess.run(
        ["sh", "-c", code], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
    )
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith(("PREFECT", "MLFLOW")))
    assert found == {
        "PREFECT_API_URL": PREFECT, "PREFECT_API_AUTH_STRING": f"{user}:{password}",
        "MLFLOW_TRACKING_URI": MLFLOW, "MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password,
    }  # fmt: skip
