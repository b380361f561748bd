"""Two real workers of one pool, and runs of a deployment on them, for tests of what the Prefect UI's buttons do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.prefect_api import Api, put_automations, remove_automations, set_state, states_of
from tests.support.processes import wait_for
from tests.support.toy import environment, quadratic, slow

CHECKOUT = Path(__file__).parents[2]
POOL = "two-workers"
RESUME_SECONDS = 10
"""In place of 30; longer than a worker takes to see that a process has ended."""
SECONDS = 3
"""How long a trial trains."""


@dataclass(frozen=True)
class Site:
    """A server with our automations and a deployment of the flow `campaign`."""

    url: str
    deployment: str
    logs: Path
    workers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def hire(self, name: str) -> None:
        """Start a worker, which is asked to end with the others."""
        self.workers.enter_context(working(self.url, POOL, name, self.logs, PREFECT_WORKER_PREFETCH_SECONDS="1"))

    def ask(self, method: str, path: str, **body: Any) -> Any:
        with Api(self.url, None) as api:
            return api.ask(method, path, body or None)

    def start(self, home: Path, folder: Path) -> Started:
        """Run a small campaign by the deployment; its directory will be in `home`."""
        stated = {
            "environment": str(quadratic(folder, fit=slow(SECONDS))), "trials": 2, "rule": "greedy", "seed": 5,
            "tracking": "off", "name": "night",
        }  # fmt: skip
        variables = {"env": {"NIGHTSHIFT_HOME": str(home), "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}}
        path = f"/deployments/{self.deployment}/create_flow_run"
        run = self.ask("POST", path, parameters=stated, job_variables=variables)
        return Started(self, str(run["id"]), home / "night")


@dataclass(frozen=True)
class Started:
    """A run of the deployment."""

    site: Site
    id: str
    campaign: Path

    @property
    def state(self) -> str:
        return str(self.site.ask("GET", f"/flow_runs/{self.id}")["state_name"])

    @property
    def states(self) -> list[str]:
        """Names of all its states, in order."""
        return states_of(self.site.url, self.id, "name")

    @property
    def lives(self) -> list[int]:
        """The process of every life of the campaign."""
        events = map(json.loads, (self.campaign / "events.jsonl").read_text().splitlines())
        return [event["pid"] for event in events if event["event"] == "life"]

    def set(self, **state: Any) -> None:
        """What the buttons of the UI send: they force."""
        set_state(self.site.url, self.id, **state)

    def cancel(self) -> None:
        self.set(type="CANCELLING", name="Cancelling")

    def retry(self) -> None:
        self.set(type="SCHEDULED", name="AwaitingRetry", message="Retry from the UI")

    def began(self, trial: int) -> None:
        """Return once a trial trains."""
        wait_for(lambda: (self.campaign / f"trials/{trial:04d}/log.txt").exists())

    def becomes(self, *names: str, seconds: float = 240) -> None:
        wait_for(lambda: self.state in names, seconds, lambda: str(self.states))


@contextlib.contextmanager
def site(url: str, logs: Path, workers: int = 2) -> Iterator[Site]:
    """The server at `url` with our automations, a deployment, and its workers, while the block runs."""
    from prefect.workers.process import ProcessWorker

    pool = Site(url, "", logs)
    put_automations(url, resume=RESUME_SECONDS)
    template = ProcessWorker.get_default_base_job_template()
    with contextlib.suppress(Exception):
        pool.ask("POST", "/work_pools/", name=POOL, type="process", base_job_template=template)
    flow = pool.ask("POST", "/flows/", name="campaign")["id"]
    made = pool.ask(
        "POST", "/deployments/", name="states", flow_id=flow, entrypoint="flows.campaign.campaign", pull_steps=[],
        work_pool_name=POOL, tags=["nightshift", "autoresume"],
    )  # fmt: skip
    found = Site(url, str(made["id"]), logs)
    with found.workers:
        for number in range(workers):
            found.hire(f"worker-{number + 1}")
        yield found
    remove_automations(url)


def prefect(url: str, *arguments: str, **variables: str) -> None:
    """Run a command of Prefect's own, in the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments], cwd=CHECKOUT, env=environment(url, **variables),
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def launches(campaign: Path, what: str) -> list[dict[str, Any]]:
    """What happened to the launches of a campaign, of one kind."""
    lines = (campaign / "events.jsonl").read_text().splitlines() if campaign.is_dir() else []
    found = [json.loads(line) for line in lines]
    return [one for one in found if one["event"] == "launch" and one["what"] == what]


@contextlib.contextmanager
def working(
    url: str, pool: str, name: str, folder: Path, *more: str, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of a pool, one run at a time, that logs to NAME.log in its folder; asked to end after the block."""
    start = ("worker", "start", "--pool", pool, "--limit", "1", "--name", name, *more)
    quick = environment(url, PREFECT_WORKER_QUERY_SECONDS="1", **variables)
    with (
        (folder / f"{name}.log").open("ab") as log,
        subprocess.Popen(
            [sys.executable, "-m", "prefect", *start], cwd=folder, env=quick, stdout=log, stderr=log,
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)
