"""What the row of a task says in Prefect: real tasks on a real server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tasks.cache_key import CRASH, At, is_last_attempt, kept, stored

import environments
from tasks import task_messages
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal, Run
from tests.support import processes
from tests.support.prefect_api import ask
from tests.support.toy import FIT, QUADRATIC, SANDBOX, quadratic

if TYPE_CHECKING:
    from collections.abc import Callable

AT = At("campaign", "digest", 7)


@pytest.fixture
def rows(server: str) -> Callable[[], list[tuple[str, str, str]]]:
    def read() -> list[tuple[str, str, str]]:
        found = ask("POST", f"{server}/task_runs/filter", {"sort": "EXPECTED_START_TIME_DESC"})
        # A row is there before its state, for a moment.
        states = [run["state"] for run in found if run["name"].startswith("said ") and run["state"]]
        return [(state["type"], state["name"], state["message"] or "") for state in states]

    return read


def test_a_further_run_of_a_trial_is_named_by_what_it_is(server: str, tmp_path: Path) -> None:
    from prefect import flow
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows.server.server_process import drain

    @stored("names", task_messages.of_run)
    def names(at: At) -> Run:
        return Run("trials/0007", 1, 2.5, "finished")

    @flow(persist_result=False)
    def campaign(environment: str, folder: Path) -> None:
        for part in ("", "certificate-1-champion-2"):
            kept(names, folder)(replace(AT, part=part))

    with temporary_settings({PREFECT_API_URL: server}):
        campaign("/home/me/spirals", tmp_path)
        drain(server)

    def found() -> list[str]:
        known = ask("POST", f"{server}/task_runs/filter", {"sort": "EXPECTED_START_TIME_DESC"})
        return sorted(run["name"] for run in known if run["name"].startswith("names "))

    processes.wait_for(lambda: len(found()) == 2, 60)  # a busy server stores them later
    assert found() == ["names spirals 7", "names spirals 7 certificate-1-champion-2"]


def test_a_crash_is_shown_as_failed_keeps_its_result_and_is_never_run_again(
    server: str, tmp_path: Path, rows: Callable[[], list[tuple[str, str, str]]]
) -> None:
    from prefect import flow
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows.server.server_process import drain

    ran = []

    @stored("said", task_messages.of_run)
    def said(at: At, status: str) -> Run:
        ran.append(status)
        error = "exited with status 1\nValueError: no such thing" if status == "crash" else None
        return Run("trials/0007", 1, 2.5, status, error)  # type: ignore[arg-type]

    @flow(persist_result=False)
    def campaign(status: str, folder: Path) -> str:
        run = kept(said, folder)(AT, status)
        assert (run.status, run.seconds) == (status, 2.5)
        return "went on"

    with temporary_settings({PREFECT_API_URL: server}):
        for _ in range(2):
            assert campaign("crash", tmp_path / "a") == "went on"
        assert campaign("finished", tmp_path / "b") == "went on"
        drain(server)
    assert ran == ["crash", "finished"], "neither a retry nor a second call runs a crashed program again"
    assert (tmp_path / "a" / f"{AT}/said").is_file()
    found = wait(rows)
    assert ("FAILED", CRASH, "crash: exited with status 1: ValueError: no such thing") in found
    assert any(kind == "COMPLETED" and name == "Cached" for kind, name, _ in found)
    assert any(kind == "COMPLETED" and "trained 2.5 s" in words for kind, _, words in found)


FULL = '{"failed": "the disk is full: trainer.log", "retry": true, "unsure": true}\\n'
SETTINGS = QUADRATIC.replace('editable = ["fit.py"]', 'editable = ["train.toml"]')


def test_a_fault_that_may_be_the_settings_own_is_the_trials_crash_when_no_retry_is_left(
    server: str, tmp_path: Path
) -> None:
    from prefect import flow
    from prefect.settings import PREFECT_API_URL, temporary_settings

    program = f"{FIT}\n(args.out / 'progress.jsonl').write_text('{FULL}')\nraise SystemExit(1)\n"
    folder = quadratic(tmp_path / "env", fit=program, toml=SETTINGS)
    environment, ran = environments.load(folder), list[bool]()

    @stored("unsure", task_messages.of_run)
    def trained(at: At) -> Run:
        ran.append(is_last_attempt())
        return run_program(
            "test/unsure", environment, SANDBOX, folder, TrialDir(tmp_path / "trial"), Proposal({"x": 1.0}), seed=7
        )

    @flow(persist_result=False)
    def campaign(environment: str) -> Run:
        return kept(trained.with_options(retry_delay_seconds=0.0), tmp_path / "results")(AT)

    with temporary_settings({PREFECT_API_URL: server}):
        run = campaign("quadratic")
    assert ran == [False, False, True] and not is_last_attempt()
    assert run.status == "crash" and (run.error or "").startswith("said: the disk is full: trainer.log")


def wait(rows: Callable[[], list[tuple[str, str, str]]]) -> list[tuple[str, str, str]]:
    """Task runs reach the server as events, a moment later."""
    import time

    deadline = time.monotonic() + 60
    while len(found := [row for row in rows() if row[0] in ("FAILED", "COMPLETED")]) < 3:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found
