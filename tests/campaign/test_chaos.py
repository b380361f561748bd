"""Killed again and again, a campaign loses and doubles nothing: benchmarks/chaos.py in the size of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.toy import environment

CHECKOUT = Path(__file__).parents[2]


def chaos(server: str, folder: Path, kills: int, *options: str) -> dict[str, Any]:
    """What the benchmark prints; it ends with an error where a life ended otherwise than it was made to."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", "--kills", str(kills), "--server", server, "--json",
         "--keep", str(folder), *options],
        cwd=CHECKOUT, env=environment(server), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("mean_resume_seconds") > 0
    return found


def survived(kills: int) -> dict[str, Any]:
    return {
        "kills": kills, "lost": 0, "doubled": 0, "orphans": 0, "slots_held": 0, "ledger_equal": True,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("parallel", [1, 2])
def test_killed_ten_times_with_its_trials_too_nothing_is_lost(tmp_path: Path, server: str, parallel: int) -> None:
    found = chaos(server, tmp_path / "chaos", 10, "--parallel", str(parallel), "--seed", "1")
    assert found == survived(10)
