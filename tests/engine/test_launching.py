"""Launching runs elsewhere, at a real server: adoption, deaths and refusals of children whose states the tests set."""

from __future__ import annotations

import contextvars
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.utilities.annotations import quote

from environments.plugins import Refused
from flows.engine import launching
from flows.engine.launching import REQUEST, LaunchDied, LaunchRequest
from tasks.bench import Bench, RunPlan
from tasks.machine.slots import Slots
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.task_key import TaskKey
from tasks.trial import Proposal
from tests.support.ledgers import created
from tests.support.prefect_api import ask, prefect_at, set_state
from tests.support.processes import wait_for
from tests.support.servers import prefect_server
from tests.support.toy import SANDBOX, quadratic, start
from tests.support.workers import launches

KEY = TaskKey("abc123", "0011223344556677", 7)
BASELINE = Proposal({"x": 2.5})
POOL = f"launch-tests-{os.getpid()}"
"""Of this worker of the test run alone: they share a server."""
DEPLOYMENT = f"gpu-pair-{os.getpid()}"
Launch = Callable[[Ledger, LaunchRequest], Future[None]]


def asked(key: TaskKey = KEY, **more: Any) -> LaunchRequest:
    return LaunchRequest(RunPlan(key, BASELINE, f"trials/{key.number:04d}", **more), 0)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A new campaign in the home of this test."""
    return created(tmp_path, "night", seed=3, rule="greedy", launch=DEPLOYMENT)


@contextmanager
def connected(server: str, retries: int = 5) -> Iterator[None]:
    """A server, as Prefect in this process talks to it, with a pool and the deployment of these tests."""
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with prefect_at(server), temporary_settings({PREFECT_CLIENT_MAX_RETRIES: retries}):
        with suppress(httpx.HTTPStatusError):  # made by an earlier test, or by a request whose answer was lost
            ask("POST", f"{server}/work_pools/", {"name": POOL, "type": "process"})
        flow = ask("POST", f"{server}/flows/", {"name": "trial"})["id"]
        made = {"flow_id": flow, "work_pool_name": POOL, "enforce_parameter_schema": False}
        ask("POST", f"{server}/deployments/", {"name": DEPLOYMENT, "entrypoint": "flows.trial.trial", **made})
        yield


@pytest.fixture
def api(server: str) -> Iterator[str]:
    with connected(server):
        yield server


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and wait for nobody for long."""
    for name, seconds in (("POLL_SECONDS", 0.05), ("VISIBLE_SECONDS", 0.3)):
        monkeypatch.setattr(launching, name, seconds)
    monkeypatch.setattr(launching.launch, "retry_delay_seconds", 0)


def finish(ledger: Ledger, key: TaskKey) -> None:
    """What a child leaves."""
    for name in ("train", "evaluate"):
        path = ledger.results / f"{key}/{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


@pytest.fixture
def launched() -> Iterator[Launch]:
    """Have a run done by a campaign's flow, in a thread of its own; what still goes on after the test is interrupted."""
    from prefect import flow

    with ThreadPoolExecutor(4) as pool:

        def launch(ledger: Ledger, what: LaunchRequest) -> Future[None]:
            @flow(name="campaign")
            def campaign() -> None:
                bench = Bench(ledger, SANDBOX, Slots.of_cores(0), 1)
                launching.launch(quote(what.plan.key), bench, quote(what), DEPLOYMENT)
                ledger.event("launch", what="returned", run="")

            return pool.submit(contextvars.copy_context().run, campaign)

        yield launch
        with interrupt.asked():
            pool.shutdown()


def runs(api: str, what: LaunchRequest) -> list[dict[str, Any]]:
    """Every launch of a run, in their order."""
    keys = [f"{what.plan.key.campaign_id}/{what.name}/launch {number}" for number in range(1, 8)]
    found = ask("POST", f"{api}/flow_runs/filter", {"flow_runs": {"idempotency_key": {"any_": keys}}})
    return sorted(found, key=lambda run: keys.index(run["idempotency_key"]))


def until(condition: Callable[[], Any], goes_on: Future[None] | None = None) -> Any:
    """What a condition gives once it is true; the error of what was to bring it about, if that has ended."""

    def found() -> Any:
        value = condition()
        if not value and goes_on is not None and goes_on.done():
            goes_on.result()
        return value

    return wait_for(found)


def test_what_is_launched_is_out_of_reach_of_another_life_of_the_campaign() -> None:
    """Which ends all that begins with the campaign's id; and no two runs of a trial are found by one mark."""
    here, there = KEY.marker(), KEY.marker(launched=True)
    assert here.startswith("abc123/") and not there.startswith("abc123")
    marks = [replace(KEY, part=part).marker() for part in ("", "run-2", "again-1", "again-10")]
    assert not any(one != other and (one + "/").startswith(other + "/") for one in marks for other in marks)


def test_an_unknown_deployment_is_refused_with_the_near_miss(api: str) -> None:
    launching.check("here")
    with pytest.raises(Refused, match=rf"'x{DEPLOYMENT}'.*'{DEPLOYMENT}'\?"):
        launching.check(f"x{DEPLOYMENT}")


def test_a_child_is_a_subflow_of_its_campaign_and_is_adopted_by_another_life(
    api: str, ledger: Ledger, launched: Launch
) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    (run,) = until(lambda: runs(api, what), done)
    set_state(api, run["id"], type="RUNNING")
    row = ask("GET", f"{api}/task_runs/{run['parent_task_run_id']}")
    assert row["state"]["state_details"]["child_flow_run_id"] == run["id"] and row["state_type"] == "RUNNING"
    assert ask("GET", f"{api}/flow_runs/{row['flow_run_id']}")["state_type"] == "RUNNING"
    second = launched(ledger, what)
    until(lambda: launches(ledger.path, "adopted"), second)
    finish(ledger, what.plan.key)
    set_state(api, run["id"], type="COMPLETED")
    assert done.result(180) is None and second.result(180) is None
    assert launched(ledger, what).result(180) is None  # it is done: nobody is asked
    assert len(runs(api, what)) == 1


def test_what_dies_or_is_cancelled_gets_the_next_number_and_after_three_deaths_another_life_tries_again(
    api: str, ledger: Ledger, launched: Launch
) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    for number, state in enumerate(("CRASHED", "CANCELLING", "CANCELLED"), 1):
        run = until(lambda n=number: runs(api, what)[n - 1 :], done)[0]
        set_state(api, run["id"], type="RUNNING")
        set_state(api, run["id"], type=state, message=f"reclaimed {number}")
    with pytest.raises(LaunchDied, match="reclaimed 3"):
        done.result(180)
    deaths = [(event["launch"], event["reason"].rpartition(": ")[2]) for event in launches(ledger.path, "died")]
    assert deaths == [(number, f"reclaimed {number}") for number in range(1, 4)]
    again = launched(ledger, what)
    assert until(lambda: runs(api, what)[3:], again)[0]["idempotency_key"].endswith("launch 4")
    finish(ledger, what.plan.key)
    assert again.result(180) is None


@pytest.mark.slow
def test_results_that_come_while_the_server_is_away_are_used(
    empty_prefect: Path, ledger: Ledger, launched: Launch, tmp_path: Path
) -> None:
    what = asked(ledger.key(0))
    with ExitStack() as up:
        (tmp_path / "prefect").mkdir()
        url = up.enter_context(prefect_server(tmp_path / "prefect", empty_prefect)).url + "/api"
        with connected(url, retries=1):
            launched(ledger, what)
        until(lambda: launches(ledger.path, "asked"))
    time.sleep(1)
    assert not launches(ledger.path, "returned")
    finish(ledger, what.plan.key)
    until(lambda: launches(ledger.path, "returned"))


def test_a_parent_that_is_interrupted_calls_its_child_back(api: str, ledger: Ledger, launched: Launch) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    (run,) = until(lambda: runs(api, what), done)
    with interrupt.asked(), pytest.raises(BaseException):  # noqa: B017, PT011 (as Prefect has it)
        done.result(180)
    assert ask("GET", f"{api}/flow_runs/{run['id']}")["state"]["type"] == "CANCELLED"


def test_a_run_that_is_done_under_another_path_and_home_comes_back_to_its_campaign(
    api: str, ledger: Ledger, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flow itself, as a worker runs it: the campaign's directory is mounted elsewhere there."""
    from flows.trial import trial

    at, mounted = ledger.key(0), tmp_path / "mnt"
    mounted.symlink_to(home)
    what = asked(at)
    write_atomic(ledger.path / what.file, REQUEST.dump_json(what))
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path / "machine"))
    facts = {"folder": f"/campaigns/{ledger.path.name}", "request": what.file}
    wrong = trial(**facts, campaign_id=at.campaign_id, return_state=True)
    assert wrong.is_failed() and "/campaigns/night" in str(wrong.message)
    other = trial(**facts, campaign_id="another", runs=str(mounted), return_state=True)
    assert other.is_failed() and "same storage" in str(other.message)
    state = trial(**facts, campaign_id=at.campaign_id, runs=str(mounted), return_state=True)
    assert state.is_completed(), state.message
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(home))
    score = json.loads(json.loads((ledger.results / f"{at}/evaluate").read_text())["result"])
    assert score["data"]["value"] == 2.25


def test_a_campaign_whose_launch_fails_for_good_ends_with_the_reason(api: str, home: Path, tmp_path: Path) -> None:
    folder, night = quadratic(tmp_path / "quad"), home / "night"
    parent = start("run", str(folder), "--name", "night", "--launch", DEPLOYMENT, "--tracking", "off", server=api)

    def launch() -> list[dict[str, Any]]:
        assert parent.poll() is None, parent.communicate()
        return launches(night, "asked")

    set_state(api, wait_for(launch)[0]["flow_run_id"], type="FAILED", message="no such storage")
    said, _ = parent.communicate(timeout=200)
    assert parent.returncode == 1 and "it failed: no such storage" in said and "Traceback" not in said, said
