"""A campaign in several flow runs, each with a chunk of its trials; here with three trials to a chunk."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from environments import load
from flows.engine import chaining
from tasks.store.ledger import Ledger, Settings
from tests.support.prefect_api import ask
from tests.support.toy import GREEDY, environment, nightshift, quadratic, status

SMALL = "import flows.engine.chaining\nflows.engine.chaining.CHUNK = 3\n"
COMMAND = f"{SMALL}from flows.cli import main\nmain()\n"
SETTINGS = Settings(overrides={}, proposer="tpe", options={}, seed=1, rule="greedy")


def events(home: Path, kind: str) -> list[dict[str, Any]]:
    lines = (home / "long/events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def decided(home: Path, name: str) -> list[tuple[str, ...]]:
    with (home / name / "results.tsv").open() as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [tuple(row[column] for column in ("trial", "score", "verdict", "params")) for row in rows]


def start_small(*arguments: str, server: str) -> subprocess.Popen[bytes]:
    """The command, with a small chunk."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        env=environment(server),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_chunk_ends_at_the_next_multiple_whatever_a_life_finds() -> None:
    size = chaining.CHUNK
    assert [(chaining.begun(n), chaining.full(n)) for n in (0, size - 1, size, 2 * size + 7)] == [
        (0, size),
        (0, size),
        (size, 2 * size),
        (2 * size, 3 * size),
    ]


def test_a_resumed_run_shows_the_newest_trials_of_its_chunk_again() -> None:
    size, shown = chaining.CHUNK, chaining.REPLAYED
    counts = (0, shown, shown + 7, size, size + 3, 3 * size - 1)
    assert [n - chaining.shown_before(n) for n in counts] == [0, shown, shown, 0, 3, shown]


def test_with_many_trials_at_once_the_slots_run_empty_less_often() -> None:
    size = chaining.CHUNK
    assert [chaining.size(parallel) for parallel in (1, 5, 16)] == [size, size, 4 * size]
    assert (chaining.begun(5 * size, 16), chaining.full(5 * size, 16)) == (4 * size, 8 * size)


def test_only_the_run_that_said_so_has_handed_over(tmp_path: Path) -> None:
    ledger = Ledger.create(
        "long", load(quadratic(tmp_path / "quad")), source="quad", settings=SETTINGS, isolation="none", spec=""
    )
    mine, other = str(uuid4()), str(uuid4())
    assert not chaining.has_handed_over(ledger, mine)
    ledger.event("continued", flow_run_id=mine, trials=3)
    assert chaining.has_handed_over(ledger, mine)
    assert not chaining.has_handed_over(ledger, other)
    assert not chaining.has_handed_over(ledger, None)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_from_the_terminal_one_command_does_all_runs_and_a_kill_between_two_changes_nothing(
    tmp_path: Path, home: Path, server: str
) -> None:
    folder = str(quadratic(tmp_path / "quad"))
    options = ["--trials", "7", "--seed", "3", "--tracking", "off", *GREEDY]
    calm = nightshift("run", folder, "--name", "calm", *options, server=server)
    assert calm.returncode == 0, calm.stderr

    with start_small("run", folder, "--name", "long", *options, server=server) as process:
        wait_until(lambda: (home / "long/events.jsonl").is_file() and events(home, "continued"))
        os.kill(process.pid, signal.SIGKILL)
    assert status("long")["state"] == "interrupted"
    assert len(decided(home, "long")) == 3
    with start_small("resume", "long", server=server) as process:
        assert process.wait(timeout=300) == 0
    assert decided(home, "long") == decided(home, "calm")

    handed = events(home, "continued")
    assert [event["trials"] for event in handed] == [3, 6]
    lives = [event["flow_run_id"] for event in events(home, "life")]
    assert len(set(lives)) == 3, "each chunk was a flow run of its own"
    assert [event["state"] for event in events(home, "end")] == ["finished"]
    last = ask("GET", f"{server}/flow_runs/{lives[1]}")
    assert (last["state_type"], last["state_name"]) == ("COMPLETED", chaining.NAME)
    rows = {"flow_runs": {"id": {"any_": [lives[2]]}}}
    wait_until(lambda: ask("POST", f"{server}/task_runs/count", rows) == 2 * 4)  # of trials 6 and 7 alone


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_deployed_run_that_is_full_schedules_the_next_one_and_once_only(
    tmp_path: Path, home: Path, server: str
) -> None:
    (tmp_path / "small.py").write_text(f"{SMALL}from flows.campaign import campaign\n")
    flow = ask("POST", f"{server}/flows/", {"name": "campaign"})["id"]
    made = {"name": f"small-{uuid4().hex[:6]}", "flow_id": flow, "entrypoint": "small.campaign"}
    deployment = ask("POST", f"{server}/deployments/", made | {"pull_steps": []})["id"]
    parameters = {
        "environment": str(quadratic(tmp_path / "quad")), "name": "long", "trials": 4, "rule": "greedy",
        "seed": 3, "tracking": "off", "until": "23:59",
    }  # fmt: skip
    asked = {"parameters": parameters}
    first = ask("POST", f"{server}/deployments/{deployment}/create_flow_run", asked)["id"]

    execute(first, tmp_path, server)
    assert len(decided(home, "long")) == 3
    (second,) = [run for run in runs_of(server, deployment) if run["id"] != first]
    assert second["parameters"]["name"] == "long"
    assert "T23:59" in second["parameters"]["until"], "the same night, whenever the next run begins"

    # It was killed after that, say, and is resumed: it does none of the other's trials, and schedules no third run.
    execute(first, tmp_path, server)
    assert len(runs_of(server, deployment)) == 2 and len(decided(home, "long")) == 3

    execute(second["id"], tmp_path, server)
    assert [row[0] for row in decided(home, "long")] == ["0", "1", "2", "3", "4"]
    assert [event["state"] for event in events(home, "end")] == ["finished"]


def execute(run: str, folder: Path, server: str) -> None:
    """Run a flow run of a deployment, as a worker does."""
    state = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
    ask("POST", f"{server}/flow_runs/{run}/set_state", state)
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "flow-run", "execute", run],
        cwd=folder,
        env=environment(server, PYTHONPATH=path),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def runs_of(server: str, deployment: str) -> list[dict[str, Any]]:
    found = ask("POST", f"{server}/flow_runs/filter", {"flow_runs": {"deployment_id": {"any_": [deployment]}}})
    assert isinstance(found, list)
    return found


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
