"""Checkpoints: the keys of results, what is never run again, what is retried, and what the rows in Prefect say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.server.server_process import drain
from tasks.checkpoint import CRASH, KEPT, RETRIES, ended, has_result, result_of, results_in
from tasks.sandbox.program import CannotStart
from tasks.task_key import TaskKey, history_digest
from tasks.trial import History, Run
from tests.support import processes
from tests.support.histories import decided
from tests.support.prefect_api import ask, prefect_at

KEY = TaskKey("abc123", "0011223344556677", 7)
THREE: History = ()
for _score in (3.0, None, 2.0):
    THREE += (decided(THREE, _score, {"x": 1.0}),)


def test_the_digest_of_a_history_sees_scores_parameters_and_order_and_no_times() -> None:
    first, second, third = THREE
    (run,) = first.runs
    slower = replace(first, wall_seconds=99.0, runs=(replace(run, seconds=50.0, wall_seconds=60.0, started=1.0),))
    assert history_digest((slower, second, third)) == history_digest(THREE)
    moved = replace(third, proposal=replace(third.proposal, params={"x": 1.5}))
    scored = replace(third, score=replace(third.score, value=9.0))
    others = (THREE[:2], (first, second, moved), (first, second, scored), (second, first, third))
    assert len({history_digest(history) for history in (THREE, *others)}) == 5


def in_flow(server: str, folder: Path, work: Callable[[], Any], environment: str = "/home/me/spirals") -> Any:
    """Run it in a flow whose tasks keep their results in a folder; what it returns."""
    from prefect import flow

    made = []

    @flow(persist_result=False)
    def campaign(environment: str) -> None:
        with results_in(folder):
            made.append(work())

    with prefect_at(server):
        campaign(environment)
        drain(server)
    return made[0]


def task_of(work: Callable[..., Any]) -> Any:
    """A task as those of a trial are declared."""
    from prefect import task

    def key_of(_: Any, given: dict[str, Any]) -> str:
        return f"{given['key']}/{work.__name__}"

    return task(**{**KEPT, "retry_delay_seconds": 0.0, "cache_key_fn": key_of})(work)


def rows(server: str, name: str, count: int) -> list[tuple[str, str, str]]:
    """The states of the tasks whose name begins so. They reach the server as events, a moment later."""
    known: list[tuple[str, str, str]] = []

    def all_are_there() -> bool:
        runs = ask("POST", f"{server}/task_runs/filter", {"task_runs": {"name": {"like_": name}}})
        states = [(run["name"], run["state"]) for run in runs if run["state"]]
        known[:] = sorted((name, state["name"], state["message"] or "") for name, state in states)
        return len([one for one in known if one[1] in (CRASH, "Completed", "Cached", "Failed")]) == count

    processes.wait_for(all_are_there)
    return known


def test_a_crash_is_shown_as_failed_keeps_its_result_and_is_never_run_again(server: str, tmp_path: Path) -> None:
    ran = []

    def said(key: TaskKey, status: str) -> Any:
        ran.append(status)
        error = "exited with status 1\nValueError: no such thing" if status == "crash" else None
        run = Run("trials/0007", 1, 2.5, status, error)  # type: ignore[arg-type]
        return ended(run, f"trained {run.seconds} s", error)

    task = task_of(said)
    for status in ("crash", "crash", "finished", "finished"):
        key = replace(KEY, part="" if status == "crash" else "certificate-1-champion-2")
        run = in_flow(server, tmp_path, lambda k=key, s=status: result_of(task.submit(k, s, return_state=False)))
        assert (run.status, run.seconds) == (status, 2.5), "of the second, it is read from its file"
    assert ran == ["crash", "finished"], "neither a retry nor a second life runs it again"
    assert has_result(tmp_path, KEY, "said")
    assert [one[:2] for one in rows(server, "said ", 4)] == [
        ("said spirals 7", "Cached"), ("said spirals 7", CRASH),
        ("said spirals 7 certificate-1-champion-2", "Cached"), ("said spirals 7 certificate-1-champion-2", "Completed"),
    ]  # fmt: skip
    words = "\n".join(words for _, _, words in rows(server, "said ", 4))
    assert "crash: exited with status 1: ValueError: no such thing" in words and "trained 2.5 s" in words


@pytest.mark.parametrize("fault", [CannotStart("the disk is full"), OSError("stale file handle"), ValueError("a bug")])
def test_only_a_fault_of_the_machine_is_tried_again_and_leaves_no_result(
    server: str, tmp_path: Path, fault: Exception
) -> None:
    ran: list[int] = []

    def faulty(key: TaskKey, last: int) -> Any:
        ran.append(last)
        if len(ran) <= last:
            raise fault
        return ended("done", "done")

    task = task_of(faulty)
    tried = 1 if isinstance(fault, ValueError) else 1 + RETRIES
    with pytest.raises(type(fault), match=str(fault)):
        in_flow(server, tmp_path, lambda: result_of(task.submit(KEY, 9, return_state=False)))
    assert len(ran) == tried
    assert not has_result(tmp_path, KEY, "faulty")
    made = in_flow(server, tmp_path, lambda: result_of(task.submit(KEY, tried, return_state=False)))
    assert made == "done" and len(ran) == tried + 1, "another life tries it again"


def test_half_a_result_is_none(tmp_path: Path) -> None:
    path = tmp_path / f"{KEY}/train"
    path.parent.mkdir(parents=True)
    path.write_text('{"metadata": {"stor')
    assert not has_result(tmp_path, KEY, "train")
    path.write_text("{}")
    assert has_result(tmp_path, KEY, "train") and not has_result(tmp_path, KEY, "evaluate")
