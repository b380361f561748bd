"""The red team again, against programs that start warm: each is forked from a template (tests/support/warm.py)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SUBJECTS = ("files", "network", "processes", "interference", "limits", "leftovers", "judge")
ATTACKS = [f"tests/red_team/test_{name}.py" for name in SUBJECTS]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_red_team_fails_against_programs_that_start_warm() -> None:
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.support.warm", "-m", "", *ATTACKS,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"^\d{3,} passed", done.stdout, re.MULTILINE), done.stdout[-500:]
