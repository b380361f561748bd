"""Figures that benchmarks keep in CSV files: read back as they were written, and the statistics that come of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import environments
from benchmarks import headline, search_hours
from benchmarks.campaigns import CHECKOUT, Rows
from benchmarks.headline import BUDGET_SECONDS, RunRow
from benchmarks.search_hours import BASELINE, HoursRow
from tasks.formats import changed

ABOUT = ("2 x a processor", "abc", "2026-11-23")


@dataclass(frozen=True)
class PlainRow:
    name: str
    score: float | None
    count: int


def repeated(configuration: str, seed: int, score: float | None, budget: float = BUDGET_SECONDS) -> RunRow:
    return RunRow("repeat", configuration, "", "walker", budget, seed, score, 100, 5000, 720.0, "", *ABOUT)


def campaign(lane: str, seed: int, ships: int, claimed: float | None, *fresh: float, **more: str) -> HoursRow:
    row = HoursRow(
        "lunar_lander", lane, seed, 1.0, 1.0 if seed else 0.0, 9, "maximize", 0.0, 5.0, ships, claimed,
        " ".join(map(str, fresh)), 0, "", "", *ABOUT,
    )  # fmt: skip
    return replace(row, **more)


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    rows = [PlainRow("a, b", 1.5, 3), PlainRow('with "quotes"\nand a line', None, 0), PlainRow("", -1e-9, 7)]
    kept = Rows(tmp_path / "new" / "kept.csv", PlainRow)
    kept.add(*rows[:2])
    kept.add(rows[2])
    assert Rows(tmp_path / "new" / "kept.csv", PlainRow).rows == rows == kept.rows


@pytest.mark.parametrize("torn", ["x,1", "x,1.0,many", "x,1.0,"])
def test_a_line_that_cannot_be_read_is_refused_and_left_alone(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "kept.csv"
    path.write_text(f"name,score,count\na,1.0,2\n{torn}\n")
    with pytest.raises(ValueError, match="count"):
        Rows(path, PlainRow)
    assert path.read_text().endswith(torn + "\n")


def test_a_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept.csv"
    path.write_text("name,other\na,1\n")
    with pytest.raises(SystemExit, match="columns"):
        Rows(path, PlainRow)


def test_the_published_walker_can_say_the_published_best() -> None:
    environment = environments.load(headline.WALKER)
    assert (environment.defaults["num_envs"], environment.budget_seconds) == (4, headline.BUDGET_SECONDS)
    assert environment.complete(dict(headline.BEST)) == {**environment.defaults, **headline.BEST}
    edit, program = (headline.WALKER / "best.diff").read_text(), (CHECKOUT / "tasks/trainers/ppo.py").read_text()
    edited = changed(edit, {"train.py": program}, ("train.py",), "diff")["train.py"]
    assert edited.count("nn.ELU()") == 3


def test_published_scores_stand_beside_runs_of_the_published_budget_alone() -> None:
    rows = [repeated("best", 1, 280.0), repeated("best", 2, None), repeated("best", 1, 290.0, budget=240.0)]
    shorter, published = headline.table(rows)
    assert (published[-1], shorter[-1]) == ("296.6", "")
    assert published[4:8] == ["1", "1", "280.0", ""], "one run with a score, one without, and no spread"


def test_the_bound_of_a_mean_is_that_of_students_t_computed_by_hand() -> None:
    assert float(headline.at_least([1.0, 2.0, 3.0])) == pytest.approx(2 - 2.91999 / math.sqrt(3), abs=0.05)
    assert headline.at_least([5.0]) == ""


def test_what_ships_gains_what_its_fresh_runs_do_and_a_ship_that_gains_nothing_is_false() -> None:
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
