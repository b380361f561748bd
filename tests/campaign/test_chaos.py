"""Killed again and again, a campaign loses and doubles nothing: benchmarks/chaos.py in the size of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.toy import environment

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
