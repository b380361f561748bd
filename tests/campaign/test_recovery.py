"""Recovery without a person: what crashed is resumed, what lives is left alone, and what leads nowhere comes to an end."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from flows.server.setup import AUTORESUME, RESUME, resume_cut_off
from tasks.store.campaign_lock import holder
from tasks.store.ledger import Ledger
from tasks.system.daemon import Daemon
from tests.support.ledgers import created
from tests.support.prefect_api import Api, prefect_at, put_automations, remove_automations, set_state
from tests.support.processes import wait_for
from tests.support.toy import nightshift, quadratic, slow, status
from tests.support.workers import prefect


def test_automations_are_made_once_and_what_a_person_switches_off_stays_off(server: str) -> None:
    put_automations(server)
    assert put_automations(server) == [], "what waits for a heartbeat is not forgotten by a second `up`"
    resume = known(server, RESUME)
    ask(server, "PATCH", f"/automations/{resume['id']}", enabled=False)
    assert put_automations(server) == []
    assert put_automations(server, resume=20) == [RESUME]
    changed = known(server, RESUME)
    assert (changed["id"], changed["enabled"], changed["trigger"]["within"]) == (resume["id"], False, 20)
    remove_automations(server)


def known(server: str, name: str) -> Any:
    (one,) = ask(server, "POST", "/automations/filter", automations={"name": {"any_": [name]}})
    return one


def ask(server: str, method: str, path: str, **body: Any) -> Any:
    with Api(server, None) as api:
        return api.ask(method, path, body or None)


def running_on(server: str, state: str = "RUNNING", **more: Any) -> str:
    """A flow run at the server, as if somebody ran it."""
    flow = ask(server, "POST", "/flows/", name="campaign")["id"]
    run = ask(server, "POST", "/flow_runs/", flow_id=flow, state={"type": "PENDING"}, **more)["id"]
    set_state(server, run, type=state)
    return str(run)


def state_of(server: str, run: str) -> str:
    return str(ask(server, "GET", f"/flow_runs/{run}")["state_type"])


def test_what_was_cut_off_is_resumed_and_nothing_else(server: str, tmp_path: Path) -> None:
    runs = {name: running_on(server) for name in ("left", "crashed", "terminal", "cancelling", "over", "stranger")}
    for name, run in runs.items():
        if name != "stranger":
            created(tmp_path, name).event("life", flow_run_id=run, pid=1, host="gone")
    created(tmp_path, "over").event("end", state="finished", reason="all 3 trials done")
    for name in ("left", "crashed", "over", "cancelling"):
        ask(server, "PATCH", f"/flow_runs/{runs[name]}", tags=[AUTORESUME])
    for name, state in (("crashed", "CRASHED"), ("over", "CRASHED"), ("cancelling", "CANCELLING")):
        set_state(server, runs[name], type=state)
    with prefect_at(server):
        assert len(resume_cut_off()) == 2
        again = resume_cut_off()
    assert {name: state_of(server, run) for name, run in runs.items()} == {
        "left": "SCHEDULED", "crashed": "SCHEDULED", "terminal": "CRASHED", "cancelling": "CANCELLED",
        "over": "CRASHED", "stranger": "RUNNING",
    }  # fmt: skip
    assert again == []
    for name in ("left", "crashed", "stranger"):
        set_state(server, runs[name], type="CANCELLED")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_whatever_is_killed_on_postgresql_the_campaign_comes_to_its_end_without_a_person(
    home: Path, tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One story for all of it, since each start takes some ten seconds and more."""
    directory = home / ".prefect"
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", postgres)
    up = nightshift("up")
    assert up.returncode == 0, up.stdout + up.stderr
    notes = {name: Daemon(directory, name).living() for name in ("server", "worker")}
    server, keepers = notes["server"], [psutil.Process(note.pid) for note in notes.values() if note]
    assert server and len(keepers) == 2
    who: tuple[str, str] = tuple((directory / "auth").read_text().strip().split(":", 1))  # type: ignore[assignment]
    put_automations(server.url, ":".join(who), silent=40)
    prefect(server.url, "deploy", "--all", PREFECT_API_AUTH_STRING=":".join(who))
    environment = str(quadratic(tmp_path / "quad", fit=slow(3)))
    parameters = {"environment": environment, "trials": 4, "rule": "greedy", "seed": 5, "tracking": "off"}

    def told(method: str, path: str, **body: Any) -> Any:
        with Api(server.url, who) as api:
            return api.ask(method, path, body or None)

    deployment = told("GET", "/deployments/name/campaign/cartpole-random")["id"]
    run = told("POST", f"/deployments/{deployment}/create_flow_run", parameters=parameters)["id"]
    wait_for(lambda: list(home.glob("*/trials/0001/log.txt")))
    (name,) = [path.name for path in home.iterdir() if path.name.startswith("cartpole-random-")]
    first = (home / name / "trials/0000/trial.json").read_text()

    for keeper in reversed(keepers):  # the worker first, so that nobody reports what follows; its keeper hires another
        for child in keeper.children():
            child.kill()
    os.kill(holder(Ledger.at(home / name))["pid"], signal.SIGKILL)

    def has_become(kind: str) -> bool:
        with contextlib.suppress(httpx.TransportError):  # the server has not been started again yet
            return bool(told("GET", f"/flow_runs/{run}")["state_type"] == kind)
        return False

    # Marked in the first seconds of the server, it is missed by the automation that resumes: `up`, by cron, is the net.
    wait_for(lambda: has_become("CRASHED"))
    assert nightshift("up").returncode == 0
    wait_for(lambda: has_become("COMPLETED"), 400)
    document = status(name)
    assert document["state"] == "finished" and len(document["trials"]) == 5
    assert (home / name / "trials/0000/trial.json").read_text() == first
    stopped = {"task_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}}}
    assert told("POST", "/task_runs/count", **stopped) == 0, "no row of the killed process runs on"
    assert nightshift("down").returncode == 0
    again = nightshift("up")
    assert again.returncode == 0 and told("GET", f"/flow_runs/{run}")["state_type"] == "COMPLETED"
    assert nightshift("down").returncode == 0
