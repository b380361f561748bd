"""Another machine: a campaign that goes on there says so once, and compares scores as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.store.ledger import Ledger, machine
from tests.support.toy import nightshift, quadratic, status


def told(ledger: Ledger) -> list[tuple[str, str]]:
    return [(event["before"], event["now"]) for event in ledger.events() if event["event"] == "machine"]


ELSEWHERE = """
import sys, tasks.store.ledger
tasks.store.ledger.machine = lambda: "another-machine"
sys.argv = ["nightshift", *sys.argv[1:]]
from flows.cli import main
main()
"""
"""The command on a machine of another name."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_campaign_that_is_resumed_on_another_machine_warns_and_goes_on(tmp_path: Path, server: str) -> None:
    environment = quadratic(tmp_path / "quad")
    asked = ("--name", "c", "--proposer", "random_search", "--tracking", "off", "--seed", "1", "--cancel", "none")
    begun = nightshift("run", str(environment), "--trials", "3", *asked, server=server)
    assert begun.returncode == 0, begun.stdout + begun.stderr
    before = status("c")
    moved = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, "resume", "c", "--trials", "5"],
        env={**os.environ, "PREFECT_API_URL": server}, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert moved.returncode == 0, moved.stdout + moved.stderr
    assert f"runs on another-machine, before on {machine()}" in moved.stdout
    found, ledger = status("c"), Ledger.open("c")
    assert told(ledger) == [(machine(), "another-machine")]
    assert found["machine"] == "another-machine" and len(found["trials"]) == 6
    assert all(not row["reruns"] for row in found["trials"])
    assert found["trials"][:4] == before["trials"], "nothing is run again there"
