"""Launching runs elsewhere: keys, adoption, deaths and refusals at a real server, and the files between two machines."""

from __future__ import annotations

import contextvars
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flows.engine.runner import Runner
from tasks.cache_key import At, history_digest, is_kept

from environments.plugins import Refused
from flows.engine import deployment_run, launching
from flows.engine.deployment_run import CannotLaunch, key
from flows.engine.launching import run_elsewhere
from flows.server.api import Api
from flows.spec.campaign_spec import CampaignSpec
from tasks.store import launch_files
from tasks.store.launch_files import Launches, LaunchRequest, NotShared
from tasks.store.ledger import Ledger
from tasks.system import interrupt, orphans
from tasks.system.files import write_atomic
from tasks.trial import Proposal
from tests.support.toy import quadratic

AT = At("abc123", "0011223344556677", 7)
BASELINE = Proposal({"x": 2.5})
POOL = "launch-tests"
Launch = Callable[[Ledger, LaunchRequest], Future[None]]


def asked(at: At = AT, **more: Any) -> LaunchRequest:
    return LaunchRequest(at, "measure", BASELINE, f"trials/{at.number:04d}", 0, history_digest(()), **more)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A new campaign in the home of this test."""
    folder = quadratic(tmp_path / "quad")
    spec = CampaignSpec.of(environment=str(folder), name="night", seed=3, rule="greedy", launch="gpu-pair")
    return spec.open()


@pytest.fixture
def api(server: str) -> Iterator[Api]:
    """The server, as Prefect in this process talks to it, with a pool and the deployment `trial/gpu-pair`."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    with (
        temporary_settings({PREFECT_API_URL: server, PREFECT_LOGGING_TO_API_ENABLED: False}),
        Api(server, None) as http,
    ):
        if not http.ask("POST", "/work_pools/filter", {"work_pools": {"name": {"any_": [POOL]}}}):
            http.ask("POST", "/work_pools/", {"name": POOL, "type": "process"})
        with get_client(sync_client=True) as client:
            flow = client.create_flow_from_name("trial")
            client.create_deployment(
                flow, "gpu-pair", entrypoint="flows.trial.trial", work_pool_name=POOL, enforce_parameter_schema=False
            )
        yield http


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and wait for nobody for long."""
    for module, name, seconds in (
        (deployment_run, "POLL_SECONDS", 0.05), (deployment_run, "LOST_CANCEL_SECONDS", 0.2),
        (deployment_run, "CANCEL_SECONDS", 5.0), (deployment_run, "POOL_SECONDS", 0.0), (deployment_run, "VISIBLE_SECONDS", 0.3),
        (launch_files, "VISIBLE_SECONDS", 0.3), (launch_files, "SILENT_SECONDS", 0.6), (launch_files, "BEAT_SECONDS", 0.05),
        (launch_files, "POLL_SECONDS", 0.05), (launching, "PAUSE_SECONDS", 0.0),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, seconds)


def finish(ledger: Ledger, at: At) -> None:
    """What a child leaves."""
    for name in ("train", "evaluate"):
        path = ledger.results / f"{at}/{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


@pytest.fixture
def launched(api: Api) -> Iterator[Launch]:
    """Have a run done, in a thread of its own; what still goes on after the test is interrupted."""
    with ThreadPoolExecutor(4) as pool:

        def launch(ledger: Ledger, what: LaunchRequest) -> Future[None]:
            return pool.submit(contextvars.copy_context().run, run_elsewhere, "gpu-pair", ledger, what)

        yield launch
        with interrupt.asked():
            pool.shutdown()


def runs(api: Api, what: LaunchRequest) -> list[dict[str, Any]]:
    """Every launch of a run, in their order."""
    keys = [key(what, number) for number in range(1, 8)]
    found = api.ask("POST", "/flow_runs/filter", {"flow_runs": {"idempotency_key": {"any_": keys}}})
    return sorted(found, key=lambda run: keys.index(run["idempotency_key"]))


def set_state(api: Api, run: dict[str, Any], **state: Any) -> None:
    api.ask("POST", f"/flow_runs/{run['id']}/set_state", {"state": state, "force": True})


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return value


def events(ledger: Ledger, what: str) -> list[dict[str, Any]]:
    return [event for event in ledger.events() if event["event"] == "launch" and event["what"] == what]


def test_a_key_names_campaign_trial_attempt_part_and_launch() -> None:
    assert key(asked(), 1) == "abc123/0007/1/launch 1"
    assert key(asked(replace(AT, attempt=2, part="run-2")), 3) == "abc123/0007/2/run-2/launch 3"
    assert key(replace(asked(), step="untrained"), 1) == "abc123/0007/1/untrained/launch 1"


def test_what_is_launched_is_out_of_reach_of_another_life_of_the_campaign() -> None:
    """Which ends all that begins with the campaign's id; and no two runs of a trial are found by one mark."""
    here, there = AT.marker, replace(AT, launched=True).marker
    assert here.startswith("abc123/") and not there.startswith("abc123")
    assert str(AT) == str(replace(AT, launched=True))
    marks = [replace(AT, part=part).marker for part in ("", "run-2", "again-1", "again-1-of-0003")]
    assert not any(one != other and (one + "/").startswith(other + "/") for one in marks for other in marks)
    assert orphans.marked("abc123") == []


def test_what_is_asked_survives_its_file_and_holds_neither_seeds_nor_keys(ledger: Ledger) -> None:
    at = ledger.key(3, "run-2")
    what = replace(asked(at), judged=ledger.key(0, "certificate-1"), purpose="report", early=True, elsewhere="hills")
    launches = Launches.of(ledger.path, what)
    token = launches.ask(1, what)
    assert launches.name == "0003-1-run-2" and launches.read(1, token).asked == what
    text = (launches.folder / "1.json").read_text()
    assert ledger.campaign.judge_key not in text
    assert str(ledger.seed("train", at)) not in text and str(ledger.seed("report", at)) not in text


def test_a_marker_that_another_wrote_is_not_taken_for_ours(ledger: Ledger) -> None:
    launches = Launches.of(ledger.path, asked())
    launches.ask(1, asked())
    with pytest.raises(NotShared, match=r"0007-1/1\.json .*another"):
        launches.read(1, "0123456789abcdef")
    with pytest.raises(NotShared, match="no such file"):
        launches.read(2, "0123456789abcdef")


def test_an_answer_to_an_earlier_marker_does_not_count(ledger: Ledger, home: Path) -> None:
    launches = Launches.of(ledger.path, asked())
    launches.answer(1, launches.ask(1, asked()), home)
    assert launches.answered(1) is not None
    launches.ask(1, asked())
    assert launches.answered(1) is None


def test_two_launches_of_a_run_never_do_it_at_once(ledger: Ledger) -> None:
    launches, inside, order = Launches.of(ledger.path, asked()), threading.Event(), []
    launches.ask(1, asked())

    def first() -> None:
        with launches.alone():
            inside.set()
            time.sleep(0.3)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10) and launches.beat()
    with launches.alone():
        order.append("second")
    thread.join()
    assert order == ["first", "second"] and launches.beat() == ""


def test_where_locks_do_not_reach_a_beat_of_another_machine_is_waited_for(ledger: Ledger) -> None:
    launches, order = Launches.of(ledger.path, asked()), []
    launches.ask(1, asked())

    def elsewhere() -> None:
        for count in range(10):
            write_atomic(launches.folder / "beat", f"another 17 {count}\n")
            time.sleep(0.1)
        order.append("its last beat")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    until(launches.beat)
    with launches.alone():
        order.append("ours")
    thread.join()
    assert order == ["its last beat", "ours"]


def test_half_a_result_is_none(ledger: Ledger) -> None:
    path = ledger.results / f"{AT}/train"
    path.parent.mkdir(parents=True)
    path.write_text('{"metadata": {"stor')
    assert not is_kept(ledger.results, AT, "train")
    path.write_text("{}")
    assert is_kept(ledger.results, AT, "train") and not is_kept(ledger.results, AT, "evaluate")


def test_an_unknown_deployment_is_refused_with_the_near_miss(api: Api) -> None:
    launching.check("here")
    launching.check("gpu-pair")
    with pytest.raises(Refused, match=r"trial/gpu-pear.*'gpu-pair'\?"):
        launching.check("gpu-pear")


def test_a_pool_without_a_worker_is_told_once_and_waited_for(api: Api, ledger: Ledger, launched: Launch) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    until(lambda: events(ledger, "waits"))
    time.sleep(0.3)
    finish(ledger, what.at)
    assert done.result(60) is None
    assert [event["reason"] for event in events(ledger, "waits")] == [f"work pool '{POOL}' has no worker"]


def test_a_child_that_is_under_way_is_adopted_and_so_is_one_that_has_ended(
    api: Api, ledger: Ledger, launched: Launch
) -> None:
    what = asked(ledger.key(0))
    with interrupt.asked(), pytest.raises(KeyboardInterrupt):  # a parent that goes before it has seen the end
        run_elsewhere("gpu-pair", ledger, replace(what, at=ledger.key(1)))
    first = launched(ledger, what)
    (run,) = until(lambda: runs(api, what))
    set_state(api, run, type="RUNNING")
    second = launched(ledger, what)
    until(lambda: events(ledger, "adopted"))
    finish(ledger, what.at)
    set_state(api, run, type="COMPLETED")
    assert first.result(60) is None and second.result(60) is None
    assert len(runs(api, what)) == 1
    run_elsewhere("gpu-pair", ledger, what)  # known: nobody is asked
    assert len(runs(api, what)) == 1


def test_a_child_whose_machine_dies_gets_the_next_number(api: Api, ledger: Ledger, launched: Launch) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    (first,) = until(lambda: runs(api, what))
    set_state(api, first, type="CRASHED", message="Process exited with status code: -9")
    _, second = until(lambda: runs(api, what)[1:] and runs(api, what))
    finish(ledger, what.at)
    assert done.result(60) is None
    assert second["idempotency_key"].endswith("launch 2") and second["parameters"]["launch"] == 2
    assert [event["reason"] for event in events(ledger, "died")] == ["Crashed: Process exited with status code: -9"]


def test_after_a_child_that_never_began_the_next_waits_for_what_may_restart(
    api: Api, ledger: Ledger, launched: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "PAUSE_SECONDS", 1.5)
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    (first,) = until(lambda: runs(api, what))
    set_state(api, first, type="CRASHED", message="Cannot connect to the Docker daemon")
    until(lambda: runs(api, what)[1:])
    finish(ledger, what.at)
    assert done.result(60) is None
    (died,), asked_for = events(ledger, "died"), events(ledger, "asked")
    assert asked_for[1]["time"] - died["time"] >= 1.5


def test_a_container_that_was_started_and_never_begins_is_lost_and_one_that_waits_for_its_image_is_not(
    api: Api, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.client.orchestration import get_client

    monkeypatch.setattr(deployment_run, "PENDING_SECONDS", 0.2)
    containers, what = f"{POOL}-{ledger.campaign.campaign_id}", asked(ledger.key(0))
    api.ask("POST", "/work_pools/", {"name": containers, "type": "docker"})
    api.ask("POST", f"/work_pools/{containers}/workers/heartbeat", {"name": "a worker"})
    with get_client(sync_client=True) as client:
        flow = client.create_flow_from_name("trial")
        client.create_deployment(flow, containers, work_pool_name=containers, enforce_parameter_schema=False)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(contextvars.copy_context().run, run_elsewhere, containers, ledger, what)
        (first,) = until(lambda: runs(api, what))
        set_state(api, first, type="PENDING")
        time.sleep(1)
        assert events(ledger, "died") == []
        api.ask("PATCH", f"/flow_runs/{first['id']}", {"infrastructure_pid": "unix:///docker.sock:4f1d"})
        until(lambda: runs(api, what)[1:])
        finish(ledger, what.at)
        assert done.result(60) is None
    assert "did not begin" in events(ledger, "died")[0]["reason"]


def test_a_child_that_falls_silent_is_lost_with_its_machine(
    api: Api, ledger: Ledger, launched: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment_run, "LOST_SECONDS", 0.5)
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    (first,) = until(lambda: runs(api, what))
    set_state(api, first, type="RUNNING")
    (Launches.of(ledger.path, what).folder / "beat").write_text("gone 17 3\n")
    until(lambda: runs(api, what)[1:])
    finish(ledger, what.at)
    assert done.result(60) is None
    assert api.ask("GET", f"/flow_runs/{first['id']}")["state"]["type"] == "CRASHED"


def test_after_three_deaths_the_campaign_stops_and_another_life_tries_again(
    api: Api, ledger: Ledger, launched: Launch
) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    for number in range(1, 4):
        run = until(lambda n=number: runs(api, what)[n - 1 :])[0]
        set_state(api, run, type="CANCELLED", message=f"reclaimed {number}")
    with pytest.raises(CannotLaunch, match=r"3 times .*reclaimed 1; .*reclaimed 3"):
        done.result(60)
    again = launched(ledger, what)
    assert until(lambda: runs(api, what)[3:])[0]["idempotency_key"].endswith("launch 4")
    finish(ledger, what.at)
    assert again.result(60) is None


def test_an_error_of_ours_is_told_in_full_and_not_tried_again(api: Api, ledger: Ledger, launched: Launch) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    (run,) = until(lambda: runs(api, what))
    set_state(api, run, type="FAILED", message="Flow run encountered an exception: TypeError: no\x1b[31m")
    with pytest.raises(CannotLaunch, match=r"trial/gpu-pair .*TypeError: no$"):
        done.result(60)
    assert len(runs(api, what)) == 1


def test_storage_that_is_not_shared_is_refused_with_both_places(api: Api, ledger: Ledger, launched: Launch) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    (run,) = until(lambda: runs(api, what))
    set_state(api, run, type="FAILED", name="NotShared", message="/mnt/night/1.json on node-7: there is no such file")
    with pytest.raises(Refused, match=r"runs/night .*/mnt/night/1.json on node-7.* `runs`"):
        done.result(60)
    assert len(runs(api, what)) == 1


def test_results_that_are_left_somewhere_else_are_refused(api: Api, ledger: Ledger, launched: Launch) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    (run,) = until(lambda: runs(api, what))
    set_state(api, run, type="COMPLETED")
    with pytest.raises(Refused, match="results"):
        done.result(60)


def test_a_parent_that_is_interrupted_calls_its_child_back(api: Api, ledger: Ledger, launched: Launch) -> None:
    what = asked(ledger.key(0))
    done = launched(ledger, what)
    (run,) = until(lambda: runs(api, what))
    with interrupt.asked(), pytest.raises(KeyboardInterrupt):
        done.result(60)
    assert api.ask("GET", f"/flow_runs/{run['id']}")["state"]["type"] == "CANCELLED"
    assert Launches.of(ledger.path, what).next == 2


def test_a_run_that_is_done_under_another_path_and_home_comes_back_to_its_campaign(
    api: Api, ledger: Ledger, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flow itself, as a worker runs it: the campaign's directory is mounted elsewhere there."""
    from flows.trial import trial

    at, mounted = ledger.key(0), tmp_path / "mnt"
    mounted.symlink_to(home)
    what, machine = asked(at), tmp_path / "machine"
    launches = Launches.of(ledger.path, what)
    token = launches.ask(1, what)
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(machine))
    facts = {"campaign": "night", "folder": f"/campaigns/{ledger.path.name}", "run": launches.name, "launch": 1}
    wrong = trial(**facts, token=token, return_state=True)
    assert wrong.name == "NotShared" and "/campaigns/night" in str(wrong.message)
    state = trial(**facts, token=token, runs=str(mounted), return_state=True)
    assert state.is_completed(), state.message
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(home))
    answer = launches.answered(1)
    assert answer and (answer.folder, answer.home) == (str(mounted / "night"), str(machine))
    spec = CampaignSpec.of(environment=str(tmp_path / "quad"), name="night", rule="greedy", launch="gpu-pear")
    run, score = Runner(spec, ledger, (), spec.slots(ledger.environment)).measure(0, BASELINE, "", "search")
    assert (run.dir, score.value) == ("trials/0000", 2.25)
    assert json.loads((ledger.results / f"{at}/train").read_text())["metadata"]["storage_key"]
