"""Killed again and again, a campaign loses and doubles nothing: benchmarks/chaos.py in the size of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.store.campaign_lock import holder
from tasks.store.ledger import Ledger
from tests.support.endpoints import reference, remote_quadratic
from tests.support.processes import wait_for
from tests.support.toy import FIT, GREEDY, environment, nightshift, quadratic, slow, start, status

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("parallel", [1, 2])
def test_killed_ten_times_with_its_trials_too_nothing_is_lost(tmp_path: Path, server: str, parallel: int) -> None:
    """The benchmark ends with an error where a life ended otherwise than it was made to."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", "--kills", "10", "--server", server, "--json", "--keep",
         str(tmp_path / "chaos"), "--parallel", str(parallel), "--seed", "1"],
        cwd=CHECKOUT, env=environment(server), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found.pop("mean_resume_seconds") > 0
    assert found == {
        "kills": 10, "lost": 0, "doubled": 0, "orphans": 0, "slots_held": 0, "ledger_equal": True,
    }  # fmt: skip


MAX_USD = 100.0
"""At a dollar a second, of which the certificate and a trial may need 58."""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_campaign_stays_within_its_budget_and_certifies(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "quad", fit=slow(1.0))
    asked = ("run", str(folder), "--trials", "60", "--tracking", "off", "--usd-per-hour", "3600")

    life = start(*asked, "--name", "n", "--max-usd", str(MAX_USD), server=server)
    wait_for((home / "n/trials/0002/trial.json").is_file)
    os.killpg(life.pid, signal.SIGKILL)
    life.communicate()
    resumed = nightshift("resume", "n", server=server)

    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    found = status("n")
    assert "max_usd = 100" in found["reason"] and found["state"] == "finished"
    assert found["certificate"] is not None, "its money was reserved"
    costs = found["spent"]
    assert MAX_USD / 3 < costs["usd"] <= MAX_USD
    assert costs["machines_usd"] > sum(row["seconds"] for row in found["trials"]), (
        "the certificate and the kill besides"
    )
    refused = nightshift(*asked, "--name", "m", "--max-usd", "20", server=server)
    assert refused.returncode == 2 and "max_usd = 20" in refused.stderr
    assert not (home / "m").exists()


SLOWLY = FIT + '(args.out / "progress.jsonl").write_text(\'{"ready": true}\\n\')\nimport time\ntime.sleep(1)\n'


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_trials_at_a_faulty_endpoint_with_an_engine_that_is_killed_are_each_trained_once(
    tmp_path: Path, stores: Path, server: str
) -> None:
    with reference(tmp_path / "endpoint", "--machines", "4", "--faults", "0.2") as endpoint:
        folder = remote_quadratic(
            tmp_path / "far", endpoint.url, SLOWLY, http="answer_seconds = 2\nusd_per_second = 0.001"
        )
        asked = ("--name", "far", "--trials", "20", "--parallel", "4", "--cancel", "none", "--trust", *GREEDY)
        begin, go_on = ("run", str(folder), *asked), ("resume", "far")
        for wanted, verb in ((1, begin), (8, go_on), (15, go_on)):
            engine = start(*verb, server=server)
            wait_for(lambda wanted=wanted: len(set(endpoint.starts)) >= wanted)  # type: ignore[misc]
            os.kill(holder(Ledger.at(stores / "far"))["pid"], signal.SIGKILL)
            engine.communicate()
        done = nightshift("resume", "far", server=server)

        assert done.returncode == 0, done.stdout + done.stderr
        starts = endpoint.starts
        assert len(starts) == len(set(starts)), "no trial was started twice"
        assert not endpoint.left and not list((stores / ".remote").iterdir()), "nothing is left running"
        history = Ledger.open("far").history()
        assert {trial.number for trial in history} == set(range(21)), "no trial is lost"
        assert all(trial.verdict.kind != "crash" for trial in history)
        costs = [trial.runs[0].usd for trial in history]
        assert all(usd and usd > 0.001 for usd in costs)
        assert status("far")["trials"][3]["usd"] == pytest.approx(costs[3])
        assert len(starts) <= 21 + 3, "what a killed engine had started was adopted, unless it was fetched already"
