"""The reference endpoint of the documentation as a process, and environments that it trains."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import environments
from environments import Environment
from tasks.store.ledger import freeze
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal, Run
from tests.support.toy import FIT, SANDBOX, quadratic, stated

REFERENCE = Path(__file__).parents[2] / "docs/endpoint.py"
TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True)
class RunningEndpoint:
    url: str
    folder: Path
    process: subprocess.Popen[str]

    @property
    def starts(self) -> list[str]:
        """The trials whose training was started, once for each start."""
        path = self.folder / "starts.txt"
        return path.read_text().split() if path.exists() else []

    @property
    def left(self) -> list[str]:
        """The trials that were not removed."""
        return [path.name for path in self.folder.iterdir() if path.is_dir()]


@contextmanager
def reference(folder: Path, *options: str, token: str = "") -> Iterator[RunningEndpoint]:
    """The endpoint, on a free port."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(REFERENCE), "--port", "0", "--folder", str(folder), *options]
    env = {**os.environ, "ENDPOINT_TOKEN": token}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield RunningEndpoint(process.stdout.readline().split()[-1], folder, process)
        finally:
            process.kill()  # also where a test has stopped it


def remote_quadratic(folder: Path, url: str, fit: str = FIT, http: str = "") -> Path:
    """The environment of `quadratic`, trained at an endpoint; `http` are further keys of its section."""
    toml = stated('trainer = "http"', "budget_seconds = 60", "startup_seconds = 60")  # a busy machine is slow to start
    section = f'[http]\nurl = "{url}"\npoll_seconds = 0.1\n{http}\n'
    return quadratic(folder, fit, toml=toml.replace("[limits]", f"{section}\n[limits]"))


def frozen(folder: Path) -> Environment:
    """The environment of `remote_quadratic` in `folder`/quad, with its program beside it as a campaign keeps one."""
    environment = environments.load(folder / "quad")
    freeze(environment, folder)
    return environment


def trained(environment: Environment, folder: Path, **more: Any) -> Run:
    """Trial 1 of such an environment, trained at x = 2."""
    place, proposal = TrialDir(folder / "trials/0001"), Proposal({"x": 2.0})
    place.path.mkdir(parents=True, exist_ok=True)
    return run_program("campaign/0001/1/run-1", environment, SANDBOX, folder / "program", place, proposal, 7, **more)
