"""Figures that benchmarks keep in CSV files: the statistics that come of them."""

from __future__ import annotations

import math
from dataclasses import replace

import environments
from benchmarks import search_hours
from benchmarks.campaigns import CHECKOUT
from benchmarks.search_hours import BASELINE, HoursRow
from tasks.editing.formats import changed

ABOUT = ("2 x a processor", "abc", "2026-11-23")


def campaign(lane: str, seed: int, ships: int, claimed: float | None, *fresh: float, **more: str) -> HoursRow:
    row = HoursRow(
        "lunar_lander", lane, seed, 1.0, 1.0 if seed else 0.0, 9, "maximize", 0.0, 5.0, ships, claimed,
        " ".join(map(str, fresh)), 0, "", "", *ABOUT,
    )  # fmt: skip
    return replace(row, **more)


def test_the_published_walker_is_an_environment_and_its_best_an_edit_of_our_program() -> None:
    folder = CHECKOUT / "benchmarks/published_walker"
    environment = environments.load(folder)
    assert (environment.defaults["num_envs"], environment.budget_seconds) == (4, 720)
    program = (CHECKOUT / "tasks/trainers/ppo.py").read_text()
    edited = changed((folder / "best.diff").read_text(), {"train.py": program}, ("train.py",))["train.py"]
    assert edited.count("nn.ELU()") == 3


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
