"""Every benchmark runs at its smallest size and prints its table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import lives, postgres
from benchmarks.__main__ import BENCHMARKS
from environments.score import Score
from tasks.store.calibration import CALIBRATION, Calibration, Measured
from tasks.trial import Run

CHECKOUT = Path(__file__).parents[2]


def calibration(folder: Path) -> list[str]:
    """Recorded runs of a baseline, as `nightshift try --runs` stores them."""
    curves = [tuple(float(number + step) for step in range(20)) for number in range(8)]
    runs = tuple(
        Measured(Run("", seed, 1.0, "finished", curve=curve), Score(curve[-1], n=1))
        for seed, curve in enumerate(curves)
    )
    file = folder / "calibration.json"
    file.write_bytes(CALIBRATION.dump_json(Calibration("toy", "0" * 16, "here", 1.0, 0, "cpu", 0.0, runs)))
    return [str(file)]


def drawn(folder: Path) -> list[str]:
    return ["--plot", str(folder / "picture.png")]


def apart(folder: Path) -> list[str]:
    """A file and a home of its own, so that nothing is kept beside the real figures."""
    return ["--store", str(folder / "store"), "--home", str(folder / "home"), *drawn(folder)]


def quick_problem(folder: Path) -> list[str]:
    """One whose trials take four seconds and hardly any of a core."""
    problem = lives.write_problem(folder / "quad", seconds=4, proposer="tpe", seed=1).parent
    return ["--environment", str(problem), "--folder", str(folder / "night")]


NEEDS = {
    "night": quick_problem,
    "headline": apart, "search_hours": apart,
    "null_nights": calibration, "proposers": drawn,
}  # fmt: skip
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
    if name == "postgres" and (postgres.binary("initdb") is None or find_spec("psycopg") is None):
        pytest.skip(f"PostgreSQL or its driver is not installed: {postgres.INSTALL}, and the extra `postgres`")
    more = NEEDS[name](tmp_path) if name in NEEDS else []

    table = run(name, "--smoke", *more)

    assert len(table.splitlines()) >= 2
    assert re.search(r"\d", table)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_trials_in_a_work_pool_are_neither_lost_nor_doubled_nor_left_running() -> None:
    size = ("--parallel", "2", "--trials", "4", "--seconds", "4", "--killed", "0.25")
    found = json.loads(run("scale", "--pool", "process", *size, "--json"))

    assert (found["trials"], found["killed"], found["seconds_to_begin"] > 0) == (4, 1, True)
    assert not any(found[harm] for harm in ("lost", "doubled", "left_running", "harmed"))


def test_every_benchmark_is_listed() -> None:
    folder = CHECKOUT / "benchmarks"
    programs = {path.stem for path in folder.glob("[a-z]*.py") if "__main__" in path.read_text()}
    programs |= {path.parent.name for path in folder.glob("[a-z]*/__main__.py")}

    assert programs == set(BENCHMARKS)
    assert set(BENCHMARKS) <= set(run().split())
