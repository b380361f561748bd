"""A campaign with a price and a budget, which is killed in the middle."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.toy import nightshift, quadratic, slow, start, status

MAX_USD = 100.0
"""At a dollar a second, of which the certificate and a trial may need 58."""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_campaign_stays_within_its_budget_and_certifies(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "quad", fit=slow(1.0))
    asked = ("run", str(folder), "--trials", "60", "--tracking", "off", "--usd-per-hour", "3600")

    life = start(*asked, "--name", "n", "--max-usd", str(MAX_USD), server=server)
    deadline = time.monotonic() + 150
    while not (home / "n/trials/0002/trial.json").is_file():
        assert time.monotonic() < deadline and life.poll() is None, life.communicate()[0]
        time.sleep(0.1)
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
