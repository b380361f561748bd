"""Figures that benchmarks keep in CSV files: read back as they were written, and the statistics that come of them."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

import environments
from benchmarks import search_hours
from benchmarks.campaigns import Rows, figures
from benchmarks.headline import picture, problems, tables
from benchmarks.headline.facts import BEST, BUDGET_SECONDS, PUBLISHED, START, TRANSFER
from benchmarks.headline.measure import RunRow
from benchmarks.search_hours import BASELINE, HoursRow
from tasks.certifying.aggregate import aggregates
from tasks.certifying.transfer import Conditions
from tests.support.histories import certified

ABOUT = ("2 x a processor", "abc", "2026-11-23")


@dataclass(frozen=True)
class PlainRow:
    name: str
    score: float | None
    count: int


def repeated(configuration: str, seed: int, score: float | None, budget: float = BUDGET_SECONDS) -> RunRow:
    return RunRow("repeat", configuration, "", "walker", budget, seed, score, 100, 5000, 720.0, "", *ABOUT)


def moved(robot: str, arm: str, number: int, score: float | None) -> RunRow:
    return RunRow("transfer", arm, "night", robot, 240.0, number, score, None, None, None, "", *ABOUT)


def campaign(lane: str, seed: int, ships: int, claimed: float | None, *fresh: float, **more: str) -> HoursRow:
    row = HoursRow(
        "lunar_lander", lane, seed, 1.0, 1.0 if seed else 0.0, 9, "maximize", 0.0, 5.0, ships, claimed,
        " ".join(map(str, fresh)), 0, "", "", *ABOUT,
    )  # fmt: skip
    return replace(row, **more)


def text(*printed: object) -> str:
    console = Console(file=io.StringIO(), width=300)
    for one in printed:
        console.print(one)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    rows = [PlainRow("a, b", 1.5, 3), PlainRow('with "quotes"\nand a line', None, 0), PlainRow("", -1e-9, 7)]
    kept = Rows(tmp_path / "new" / "kept.csv", PlainRow)
    kept.add(*rows[:2])
    kept.add(rows[2])
    assert Rows(tmp_path / "new" / "kept.csv", PlainRow).rows == rows == kept.rows


@pytest.mark.parametrize("torn", ["x,1", "x,1.0,many", "x,1.0,"])
def test_a_line_that_cannot_be_read_is_named_and_left_alone(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "kept.csv"
    path.write_text(f"name,score,count\na,1.0,2\n{torn}\n")
    with pytest.raises(SystemExit, match="line 3"):
        Rows(path, PlainRow)
    assert path.read_text().endswith(torn + "\n")


def test_a_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept.csv"
    path.write_text("name,other\na,1\n")
    with pytest.raises(SystemExit, match="columns"):
        Rows(path, PlainRow)


def test_a_campaign_that_was_cut_off_has_no_figures() -> None:
    document = {"campaign": "n", "state": "stopped", "reason": "the disk is full", "baseline": {"score": 1.0}}
    with pytest.raises(RuntimeError, match="the disk is full"):
        figures(document | {"champion": None, "certificate": None})


def test_the_published_start_is_the_baseline_and_the_published_best_lies_in_the_space(tmp_path: Path) -> None:
    for folder in (problems.walker(tmp_path, 720), *(problems.robot(tmp_path, name, 240) for name in problems.ROBOTS)):
        environment = environments.load(folder)
        assert environment.defaults == START
        assert environment.complete(dict(BEST)) == {**START, **BEST}
    assert set(problems.ROBOTS) == set(problems.TITLES) == set(TRANSFER)


def test_the_networks_of_the_published_best_are_an_edit_that_fits_the_program() -> None:
    edit = problems.best_edit()
    assert edit.count("\n@@") == 1 and edit.count("nn.ELU()") == 3
    added = [line for line in edit.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert len(added) == 3


def test_the_bound_of_a_mean_is_that_of_students_t_computed_by_hand() -> None:
    found = tables.summary([repeated("start", seed, score) for seed, score in enumerate((1.0, 2.0, 3.0, None))])
    assert (found.mean, found.sd, found.failed) == (2.0, 1.0, 1)
    assert found.at_least == pytest.approx(2 - 2.91999 / math.sqrt(3), abs=1e-4)
    assert math.isnan(tables.summary([repeated("start", 1, 5.0)]).at_least)


def test_published_scores_stand_beside_runs_of_the_published_budget_alone() -> None:
    best = PUBLISHED["best"]
    assert f"{best}" in text(tables.repeats([repeated("best", 1, 280.0), repeated("best", 2, 290.0)]))
    assert f"{best}" not in text(tables.repeats([repeated("best", 1, 280.0, budget=240.0)]))
    assert "| best " in text(tables.repeats([repeated("best", 1, None)])), "one without any score is shown too"


def test_the_figure_over_robots_is_the_one_of_the_engine(tmp_path: Path) -> None:
    scores = {"hopper": ([310.0, 290.0, 350.0], [200.0, 180.0, 240.0]), "ant": ([900.0, 1000.0], [950.0, 870.0])}
    rows = [
        moved(robot, arm, number, score)
        for robot, arms in scores.items()
        for arm, runs in zip(("champion", "baseline"), arms, strict=True)
        for number, score in enumerate(runs, 1)
    ]
    elsewhere = Conditions(1.0, None, {"lr": 0.1})
    proofs = [replace(certified(3, *arms, on=robot), conditions=elsewhere) for robot, arms in scores.items()]
    (engine,) = aggregates(proofs)
    found = tables.aggregate(rows, "night", 240.0)
    assert not isinstance(found, str) and engine.gain is not None
    assert (found.value, found.low, found.high) == pytest.approx(
        (engine.gain.value, engine.gain.low, engine.gain.high), rel=0.05
    )
    assert "2,105 -> 3,613" in text(*tables.transfers(rows))
    picture.draw(rows, "night", 240.0, tmp_path / "transfer.png")
    assert (tmp_path / "transfer.png").stat().st_size > 1000


def test_a_champion_that_crashed_on_a_robot_has_no_figure_over_all() -> None:
    both = [(robot, arm) for robot in ("hopper", "ant") for arm in ("champion", "baseline")]
    rows = [moved(*one, number, float(number)) for one in both for number in (1, 2)]
    assert not isinstance(tables.aggregate(rows, "night", 240.0), str)
    assert "no score" in str(tables.aggregate([*rows, moved("ant", "champion", 3, None)], "night", 240.0))
    assert isinstance(tables.aggregate(rows[::2], "night", 240.0), str), "one run of each tells no spread"
    only = [moved("ant", "champion", 1, None), moved("ant", "baseline", 1, 4.0)]
    assert "no score" in text(*tables.transfers(only))


def test_what_ships_gains_what_its_fresh_runs_do_and_a_ship_that_gains_nothing_is_false(tmp_path: Path) -> None:
    base = campaign(BASELINE, 0, 0, None, 0.0, 2.0)
    rows = [
        base,
        campaign("tpe", 1, 4, 8.0, 9.0, 11.0),
        campaign("tpe", 2, 0, None),
        campaign("greedy", 1, 3, 9.0, -1.0),
    ]
    lanes = search_hours.lanes_of(rows, "lunar_lander", 1.0)
    assert lanes["tpe"].gains == [9.0, 0.0] and lanes["tpe"].false == 0
    assert lanes["greedy"].gains == [-2.0] and lanes["greedy"].false == 1
    less = [replace(row, direction="minimize") for row in rows]
    assert search_hours.lanes_of(less, "lunar_lander", 1.0)["tpe"].gains == [-9.0, 0.0]
    assert math.isnan(search_hours.lanes_of([base, campaign("gp", 1, 4, 8.0)], "lunar_lander", 1.0)["gp"].gains[0])
    search_hours.draw(rows, tmp_path / "hours.png")
    assert (tmp_path / "hours.png").stat().st_size > 1000


def test_a_lane_that_does_not_fit_is_named_with_its_reason() -> None:
    out = io.StringIO()
    rows = [campaign(BASELINE, 0, 0, None, 1.0), campaign("halving", 0, 0, None, reason="rank correlation 0.2")]
    search_hours.show(rows, Console(file=out, width=300))
    assert "halving" in out.getvalue() and "rank correlation 0.2" in out.getvalue()
