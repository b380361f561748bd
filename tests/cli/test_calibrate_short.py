"""Calibrating short budgets: real runs at two budgets whose order is known, stored one by one."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.cli.deciding import calibrate_short, verbs
from tasks.store.short_runs import SHORT_RUNS, ShortRuns
from tests.support.toy import QUADRATIC, nightshift, quadratic, start

FIT_AT = """\
import json, pathlib
config = json.loads(pathlib.Path("config.json").read_text())
x, is_short = config["params"]["x"], config["budget_seconds"] < 5
if is_short and x > LIMIT: raise SystemExit(3)
pathlib.Path(config["out"], "model.json").write_text(json.dumps({"x": SIGN * x + 10 if is_short else x}))
"""
"""A trainer whose short runs score in the same order as whole ones, or the other way round."""
JUDGE = """\
import json, pathlib, sys
x = json.loads(pathlib.Path(sys.argv[1], "model.json").read_text())["x"]
pathlib.Path(sys.argv[2]).write_text(json.dumps({"score": x}))
"""
TOML = QUADRATIC.replace("python fit.py --x {x} --out {out}", "python fit.py")


def problem(folder: Path, sign: int = 1, limit: float = 9.0) -> Path:
    return quadratic(folder, FIT_AT.replace("SIGN", str(sign)).replace("LIMIT", str(limit)), JUDGE, TOML)


def measured(folder: Path, points: int, share: float = 0.3, seed: int = 5) -> ShortRuns:
    return calibrate_short.prepare(str(folder), share, [], seed, "auto").measure(points, quiet=True)


def test_points_run_at_both_budgets_and_a_second_command_goes_on_where_the_first_ended(
    tmp_path: Path, home: Path
) -> None:
    folder = problem(tmp_path / "quad")
    first = measured(folder, 3)
    session = calibrate_short.prepare(str(folder), 0.3, [], 5, "auto")
    assert "2 to run" in calibrate_short.cost(session, 5) and "3 known" in calibrate_short.cost(session, 5)
    whole = session.measure(5, quiet=True)
    assert whole.points[:3] == first.points and len(whole.points) == 5
    assert len({point.params["x"] for point in whole.points}) == 5
    for point in whole.points:
        assert point.full is not None and point.short.score.value == pytest.approx(point.params["x"] + 10)
        assert point.full.score.value == pytest.approx(point.params["x"])
        assert point.short.run.seed != point.full.run.seed
    assert whole.correlation is not None and whole.correlation.value == pytest.approx(1)
    assert SHORT_RUNS.validate_json(whole.path(home).read_bytes()) == whole
    folders = sorted(whole.path(home).parent.glob("[0-9]*"))
    assert measured(folder, 5) == whole
    assert sorted(whole.path(home).parent.glob("[0-9]*")) == folders, "nothing ran, and nothing is left of it"


@pytest.mark.slow
def test_a_point_that_crashes_short_is_not_run_in_full_and_not_ranked(tmp_path: Path) -> None:
    whole = measured(problem(tmp_path / "quad", sign=-1, limit=0.5), 6)
    crashed = [point for point in whole.points if point.full is None]
    assert crashed and all(point.params["x"] > 0.5 for point in crashed)  # type: ignore[operator]
    assert whole.correlation is None or whole.correlation.value == pytest.approx(-1)


@pytest.mark.parametrize(
    ("share", "points"), [(0.0, 20), (1.0, 20), (-1.0, 20), (float("nan"), 20), (30.0, 20), (0.3, 3)]
)
def test_a_share_or_a_number_that_measures_nothing_is_refused(tmp_path: Path, share: float, points: int) -> None:
    with pytest.raises(Refused, match=r"--fidelity|--configs"):
        calibrate_short.calibrate(str(tmp_path), share, points, [], False, None, "auto", False)


def test_options_of_the_two_calibrations_are_not_mixed(tmp_path: Path) -> None:
    folder = str(problem(tmp_path / "quad"))
    with pytest.raises(Refused, match="--configs belongs to --fidelity"):
        verbs.calibrate(folder, configs=5)
    for more in ({"runs": 5}, {"gain": 1.0}):
        with pytest.raises(Refused, match="leave them out"):
            verbs.calibrate(folder, fidelity=0.3, **more)  # type: ignore[arg-type]


def test_without_a_parameter_to_vary_there_is_nothing_to_rank(tmp_path: Path, home: Path) -> None:
    toml = TOML[: TOML.index("[space.x]")] + "[fixed]\nx = 1.0\n"
    folder = quadratic(tmp_path / "fixed", toml=toml)
    with pytest.raises(Refused, match="no parameter"):
        calibrate_short.prepare(str(folder), 0.3, [], None, "auto")
    assert not list((home / ".calibrations").glob("*/[0-9]*"))


@pytest.mark.slow
def test_killed_in_the_middle_it_keeps_its_points_and_auto_uses_what_it_found(
    tmp_path: Path, home: Path, server: str
) -> None:
    folder = problem(tmp_path / "quad")
    command = ("calibrate", str(folder), "--fidelity", "0.3", "--configs", "10")
    with start(*command) as process:
        deadline = time.monotonic() + 120
        while not (stored := list(home.glob(".calibrations/*/*-at-0.3.json"))):
            assert time.monotonic() < deadline, "no point was stored"
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    before = SHORT_RUNS.validate_json(stored[0].read_bytes())
    assert 1 <= len(before.points) < 10
    done = nightshift(*command, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["correlation"]["pays"] and document["correlation"]["count"] == 10
    assert SHORT_RUNS.validate_json(stored[0].read_bytes()).points[: len(before.points)] == before.points
    said = nightshift(*command).stdout
    assert "0 to run" in said and "pay" in said
    options = ("--trials", "1", "--fidelity", "auto", "--rule", "greedy", "--tracking", "off")
    ran = nightshift("run", str(folder), "--name", "night", *options, server=server)
    assert ran.returncode == 0 and "fidelity = auto: new points run for 30% of the budget" in ran.stdout
