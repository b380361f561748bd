"""The commands of the headline: what was cut off goes on, what has ended is not run again, and the tables need no run."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import environments
from benchmarks.headline import problems
from tests.support.toy import nightshift

CHECKOUT = Path(__file__).parents[2]
SMALL = ("--budget", "3", "--episodes", "2")


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The benchmark in a session of its own, which is ended with the block."""
    places = ("--store", str(folder / "results"), "--home", str(folder))
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.headline", *arguments, *places],
        cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)


def told(folder: Path, *arguments: str, code: int = 0) -> str:
    with started(folder, *arguments) as process:
        output, _ = process.communicate()
    assert process.returncode == code, output
    return output


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "results" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_problem_of_a_campaign_can_be_written_for_other_commands(tmp_path: Path) -> None:
    plain, quick = (
        environments.load(Path(told(tmp_path, "problem", *SMALL, "--problem", name).strip()))
        for name in problems.WALKERS
    )

    assert plain.budget_seconds == quick.budget_seconds == 3
    assert (plain.cores, quick.cores) == (2, 1)
    assert quick.fixed == {**plain.fixed, "simulator": "envpool"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_campaign_that_was_cut_off_goes_on_and_one_that_has_ended_is_not_run_again(tmp_path: Path) -> None:
    asked = ("campaigns", *SMALL, "--trials", "2", "--seeds", "1")
    trial = tmp_path / "home/walker-3s-tpe-2-1/trials/0001"
    with started(tmp_path, *asked) as process:
        while not trial.exists() and process.poll() is None:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode == 130 and "the same command goes on" in output, output
    assert not (tmp_path / "results/headline_campaigns.csv").exists()

    assert "walker-3s-tpe-2-1" in told(tmp_path, *asked)
    (campaign,) = rows(tmp_path, "headline_campaigns.csv")
    assert (campaign["trials"], campaign["problem"], campaign["seed"]) == ("2", "walker", "1")
    before = (tmp_path / "home/walker-3s-tpe-2-1/events.jsonl").read_bytes()
    assert told(tmp_path, *asked) == told(tmp_path, "table")
    assert (tmp_path / "home/walker-3s-tpe-2-1/events.jsonl").read_bytes() == before
    assert "exit code 2" in told(tmp_path, *asked[:-4], "--proposer", "nobody", code=1)

    found = campaign["champion_trial"] != "0"  # by chance the baseline is the best of three
    again = ("repeat", *SMALL, "--config", "champion", "--campaign", "walker-3s-tpe-2-1", "--seeds", "1")
    assert ("champion walker-3s-tpe-2-1" if found else "has no champion") in told(tmp_path, *again, code=int(not found))
    assert "has no champion" in told(tmp_path, *again[:-3], "another", "--seeds", "1", code=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_champion_is_tried_on_other_robots_once(tmp_path: Path) -> None:
    pytest.importorskip("mujoco", reason="the robots need MuJoCo: pip install --editable '.[ppo,mujoco]'")
    folder = problems.walker(tmp_path / "problems", 3, 2)
    more = [f'{{ rationale = "more at a time", params = {{ num_envs = {number} }} }}' for number in (16, 32)]
    proposals = f"advanced.options.proposals = [{', '.join(more)}]\n"
    (tmp_path / "spec.toml").write_text(
        f'environment = "{folder}"\nproposer = "scripted"\nrule = "greedy"\n{proposals}'
    )
    asked = ("--set", "allow_untrained=true", "--trials", "2", "--tracking", "off")
    home = {"NIGHTSHIFT_HOME": str(tmp_path / "home")}
    for seed in range(8):  # by chance the baseline may be the best of three
        chosen = f"chosen-{seed}"
        done = nightshift("run", str(tmp_path / "spec.toml"), *asked, "--name", chosen, "--seed", str(seed), **home)
        assert done.returncode == 0, done.stdout + done.stderr
        if "the baseline stands" not in done.stdout:
            break
    moved = ("transfer", *SMALL, "--campaign", chosen, "--robots", "hopper", "--runs", "2")

    table = told(tmp_path, *moved)
    assert "hopper" in table and "2,105 -> 3,613" in table
    kept = rows(tmp_path, "headline_runs.csv")
    assert sorted((row["configuration"], row["run"]) for row in kept) == [
        ("baseline", "1"), ("baseline", "2"), ("champion", "1"), ("champion", "2"),
    ]  # fmt: skip
    assert told(tmp_path, *moved) == table
    assert rows(tmp_path, "headline_runs.csv") == kept
