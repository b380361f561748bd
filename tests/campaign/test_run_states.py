"""The table of docs/prefect-and-mlflow.md: what each button and each death does to a deployed campaign, with two real workers."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.store.campaign_lock import holder
from tasks.store.ledger import Ledger
from tests.support.prefect_api import ask, put_automations, remove_automations, set_state, states_of
from tests.support.processes import wait_for
from tests.support.toy import nightshift, quadratic, slow, start, stated, status
from tests.support.workers import prefect, working

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STAYS_SECONDS = 50
"""Longer than the automations and a worker take to resume a run."""

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
        return ask(method, f"{self.url}{path}", body or None)


@dataclass(frozen=True)
class Started:
    """A run of the deployment."""

    site: Site
    id: str
    campaign: Path

    @functools.cached_property
    def baseline(self) -> str:
        """Its first trial, as it was when this was asked first."""
        return (self.campaign / "trials/0000/trial.json").read_text()

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
        return [event["pid"] for event in Ledger.at(self.campaign).events() if event["event"] == "life"]

    def set(self, **state: Any) -> None:
        """What the buttons of the UI send: they force."""
        set_state(self.site.url, self.id, **state)

    def cancel(self) -> None:
        self.set(type="CANCELLING", name="Cancelling")

    def becomes(self, name: str) -> None:
        wait_for(lambda: self.state == name, why=lambda: str(self.states))


@pytest.fixture(scope="module")
def site(lone_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With two workers."""
    put_automations(lone_server, resume=RESUME_SECONDS)
    prefect(lone_server, "work-pool", "create", POOL, "--type", "process")
    stated = {
        "name": "states", "flow_id": ask("POST", f"{lone_server}/flows/", {"name": "campaign"})["id"], "pull_steps": [],
        "entrypoint": "flows.campaign.campaign", "work_pool_name": POOL, "tags": ["nightshift", "autoresume"],
    }  # fmt: skip
    made = ask("POST", f"{lone_server}/deployments/", stated)
    found = Site(lone_server, str(made["id"]), tmp_path_factory.mktemp("workers"))
    with found.workers:
        for name in ("worker-1", "worker-2"):
            found.hire(name)
        yield found
    remove_automations(lone_server)


@pytest.fixture
def run(site: Site, home: Path, tmp_path: Path) -> Iterator[Started]:
    """A small campaign, run by the deployment, that trains its first trial after the baseline."""
    asked = {
        "environment": str(quadratic(tmp_path / "quad", fit=slow(SECONDS), toml=stated("budget_seconds = 120"))),
        "trials": 2, "rule": "greedy", "seed": 5, "tracking": "off", "name": "night",
    }  # fmt: skip
    variables = {"env": {"NIGHTSHIFT_HOME": str(home), "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}}
    path = f"/deployments/{site.deployment}/create_flow_run"
    made = site.ask("POST", path, parameters=asked, job_variables=variables)
    started = Started(site, str(made["id"]), home / "night")
    wait_for((started.campaign / "trials/0001/log.txt").exists)
    assert started.baseline
    yield started
    if not psutil.pid_exists(started.lives[-1]):
        return
    started.cancel()
    wait_for(lambda: gone(started))


def gone(run: Started) -> bool:
    """Whether no process of the campaign's newest life is left, and its slot and lock are free."""
    return not psutil.pid_exists(run.lives[-1]) and status(run.campaign.name)["state"] != "running"


def stays(run: Started, *names: str) -> None:
    """Fail if the run changes its state although nobody asks for it."""
    lives, until = len(run.lives), time.monotonic() + STAYS_SECONDS
    while time.monotonic() < until:
        assert run.state in names, run.states
        time.sleep(0.5)
    assert len(run.lives) == lives, "no process has taken the campaign again"


def finishes_without_repeating(run: Started) -> None:
    """The run comes to its end, and the baseline that was finished before is read from its file."""
    run.becomes("Completed")
    assert [row["trial"] for row in status(run.campaign.name)["trials"]] == [0, 1, 2]
    assert (run.campaign / "trials/0000/trial.json").read_text() == run.baseline


def test_cancel_ends_the_training_for_good_and_retry_goes_on(run: Started) -> None:
    run.cancel()
    run.becomes("Cancelled")
    assert "Crashed" not in run.states
    wait_for(lambda: gone(run))
    stays(run, "Cancelled")
    assert run.states.count("AwaitingRetry") == 0

    run.set(type="SCHEDULED", name="AwaitingRetry", message="Retry from the UI")
    finishes_without_repeating(run)
    logs = run.site.ask("POST", "/logs/filter", logs={"flow_run_id": {"any_": [run.id]}}, limit=200)
    assert any("1 trial read from files" in line["message"] for line in logs)


def test_cancel_reaches_a_campaign_that_no_worker_watches(site: Site, home: Path, tmp_path: Path) -> None:
    folder = str(quadratic(tmp_path / "quad", fit=slow(20)))
    few = ("--trials", "2", "--rule", "greedy", "--tracking", "off")
    with start("run", folder, "--name", "night", *few, server=site.url) as process:
        wait_for((home / "night/trials/0000/log.txt").exists)
        alone = Started(site, holder(Ledger.at(home / "night"))["flow_run_id"], home / "night")
        alone.cancel()
        assert process.wait(timeout=60) == 130
    assert alone.state == "Cancelled"
    assert status("night")["state"] == "interrupted"


def test_pause_ends_the_process_after_the_training_under_way_and_resume_goes_on(run: Started) -> None:
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=300)
    details = {"pause_timeout": until.isoformat(), "pause_reschedule": True}
    run.set(type="PAUSED", name="Suspended", state_details=details)
    wait_for(lambda: gone(run))
    assert run.state == "Suspended"
    stays(run, "Suspended")

    trained = (run.campaign / "trials/0001/out/model.json").stat().st_mtime_ns
    run.site.ask("POST", f"/flow_runs/{run.id}/resume")
    finishes_without_repeating(run)
    assert (run.campaign / "trials/0001/out/model.json").stat().st_mtime_ns == trained


def test_sigterm_from_anybody_else_frees_the_slot_and_the_run_is_resumed(site: Site, run: Started) -> None:
    os.kill(run.lives[-1], signal.SIGTERM)  # as `systemctl stop` does
    site.hire("after SIGTERM")  # Prefect 3.8's worker ends if it is given the run again before that process has ended
    wait_for(lambda: not psutil.pid_exists(run.lives[0]), 60)
    finishes_without_repeating(run)
    ended = {name for name in run.states if name in ("Cancelled", "Failed", "Crashed", "AwaitingRetry")}
    assert ended == {"Crashed", "AwaitingRetry"}, run.states
    assert len(run.lives) in (2, 3), "a death may be reported twice, as below"


def test_stop_now_is_not_resumed_by_the_automation(run: Started) -> None:
    assert nightshift("stop", "night", "--now", server=run.site.url).returncode == 0
    run.becomes("Cancelled")
    stays(run, "Cancelled")
