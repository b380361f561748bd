"""The red team again, against programs that start warm: a standby becomes each (tests/support/warm.py)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SUBJECTS = ("files", "network", "processes", "interference", "limits", "leftovers", "judge", "unpickling")
ATTACKS = [f"tests/red_team/test_{name}.py" for name in SUBJECTS]

OF_INODES = "tests/red_team/test_judge.py::test_red_team_nothing_of_the_trial_can_be_written_during_judgement"
"""It compares inodes, and those of a trial's two folders are the standby's from when it is given the trial."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_red_team_fails_against_programs_that_start_warm() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.support.warm", *ATTACKS]
    command += ["--deselect", OF_INODES]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"^\d{3,} passed", done.stdout, re.MULTILINE), done.stdout[-500:]
