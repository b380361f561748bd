"""Every benchmark runs at its smallest size and prints its table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import lives
from benchmarks.__main__ import BENCHMARKS

CHECKOUT = Path(__file__).parents[2]


def apart(folder: Path) -> list[str]:
    """A file and a home of its own, so that nothing is kept beside the real figures."""
    return ["--store", str(folder / "store"), "--home", str(folder / "home")]


def quick_problem(folder: Path) -> list[str]:
    """One whose trials take four seconds and hardly any of a core."""
    problem = lives.write_problem(folder / "quad", seconds=4, proposer="tpe", seed=1).parent
    return ["--environment", str(problem), "--folder", str(folder / "night")]


def real_model(folder: Path) -> list[str]:
    if "NIGHTSHIFT_MODEL" not in os.environ:
        pytest.skip("NIGHTSHIFT_MODEL names no folder with a small chat model")
    return [os.environ["NIGHTSHIFT_MODEL"]]


NEEDS = {"night": quick_problem, "real_model": real_model, "search_hours": apart}
"""More arguments, and what has to be there for them."""


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=CHECKOUT, env=os.environ, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_runs_at_its_smallest_size_and_prints_a_table(name: str, tmp_path: Path) -> None:
    more = NEEDS[name](tmp_path) if name in NEEDS else []

    table = run(name, "--smoke", *more)

    assert len(table.splitlines()) >= 2
    assert re.search(r"\d", table)


def test_every_benchmark_is_listed() -> None:
    folder = CHECKOUT / "benchmarks"
    programs = {path.stem for path in folder.glob("[a-z]*.py") if "__main__" in path.read_text()}

    assert programs == set(BENCHMARKS)
    assert set(BENCHMARKS) <= set(run().split())
