"""A whole campaign whose trials are trained at an endpoint that fails, and whose engine is killed on the way."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tasks.store.campaign_lock import holder
from tasks.store.ledger import Ledger
from tests.support.endpoints import reference, remote_quadratic
from tests.support.toy import FIT, GREEDY, nightshift, start, status

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
        arguments = ("run", str(folder), "--name", "far", "--trials", "20", "--parallel", "4", "--trust", *GREEDY)
        for wanted, verb in ((1, arguments), (8, ("resume", "far")), (15, ("resume", "far"))):
            engine = start(*verb, server=server)
            while len(set(endpoint.starts)) < wanted:
                assert engine.poll() is None
                time.sleep(0.1)
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
