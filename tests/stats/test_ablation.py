"""Ablation: which changes are said to carry, and how often one that does nothing is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tasks.stats.ablation import LEVEL, Ablation, Removed, ablation_runs
from tasks.trial import Run
from tests.support.histories import scored

RUN = Run("ablations/0001-1-1", 1, 5.0, "finished")


def runs(change: str, *values: float | None, higher_is_better: bool = True) -> list[Removed]:
    return [Removed(change, RUN, scored(value, higher_is_better)) for value in values]


def ablation(mine: Sequence[float | None], sd: float = 0.0, **without: Sequence[float | None]) -> Ablation:
    return Ablation.of(1, [one for name, values in ({"": mine} | without).items() for one in runs(name, *values)], sd)


@pytest.mark.slow
@pytest.mark.parametrize(("inert", "noisier"), [(7, 1.0), (7, 1.7), (2, 1.7)])
def test_changes_that_do_nothing_are_rarely_said_to_carry(inert: int, noisier: float) -> None:
    """Of seven changes the others carry three sds; the champion and what is equal to it may be the noisier ones."""
    draw, nights, (mine, each) = np.random.default_rng(inert), 100, ablation_runs(7)
    false = 0
    for _ in range(nights):
        same = {f"x{n}": draw.normal(0, noisier, each) for n in range(inert)}
        worse = {f"y{n}": draw.normal(-3, 1, each) for n in range(7 - inert)}
        made = ablation(draw.normal(0, noisier, mine), 1.0, **same, **worse)
        false += any(p <= LEVEL and change in same for change, (_, p) in made.findings.items())
    assert false / nights <= LEVEL + 2 * (LEVEL * (1 - LEVEL) / nights) ** 0.5


def test_a_change_carries_when_the_fresh_runs_show_that_it_is_missed() -> None:
    made = ablation((100.0, 104.0, 96.0), x=(40.0, 44.0), y=(99.0, 103.0))
    assert {change: p <= LEVEL for change, (_, p) in made.findings.items()} == {"x": True, "y": False}
    carries, not_shown = made.sentences()
    assert carries.startswith("without x: 58 worse (2 v 3 fresh runs, p < ") and carries.endswith("it carries")
    assert not_shown.startswith("without y: 1 better") and "not shown to carry" in not_shown


def test_runs_that_happen_to_agree_prove_nothing_by_that() -> None:
    """Their variance is at least half of the search's."""
    made = ablation((10.0, 10.0, 10.0), 5.0, x=(9.9, 9.9))
    assert made.sd == pytest.approx(5.0 / 2**0.5) and made.findings["x"][1] > LEVEL


def test_crashed_runs_leave_a_change_untold_and_a_crashed_champion_all_of_them() -> None:
    made = ablation((10.0, 11.0, 9.0), x=(1.0, None), y=(1.0, 1.5))
    assert [*made.findings] == ["y"]
    assert "without x: could not be told, since 1 of 2 runs crashed: exited with status 3" in made.sentences()
    lost = ablation((10.0, None, 9.0), x=(1.0, 2.0))
    assert lost.findings == {} and "1 of 3 runs of the champion crashed" in lost.sentences()[0]
