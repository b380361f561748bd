"""Campaigns side by side with Prefect and MLflow on a real PostgreSQL: nothing is lost, and nobody meets a lock."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import postgres

CHECKOUT = Path(__file__).parents[2]
WORKERS, TRIALS = 8, 24


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_eight_campaigns_at_once_lose_no_record_on_postgresql() -> None:
    if postgres.binary("initdb") is None:
        pytest.skip(f"PostgreSQL is not installed: {postgres.INSTALL}")
    if find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed: pip install 'psycopg[binary]>=3.2,<4', the extra `postgres`")
    asked = ["postgres", "--on", "postgres", "--workers", str(WORKERS), "--trials", str(TRIALS), "--json"]
    done = subprocess.run([sys.executable, "-m", "benchmarks", *asked], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (figures,) = json.loads(done.stdout)
    assert figures["failed"] == {}
    assert figures["recorded"] == TRIALS + WORKERS  # every campaign has its baseline too
    assert figures["errors"] == {}, figures["examples"]
