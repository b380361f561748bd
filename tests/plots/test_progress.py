"""The figures of a campaign: what is drawn at which height, that any name and number is, and that nothing acts."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from tasks.plots.canvas import png, svg, window
from tasks.plots.progress import draw, plotted
from tasks.stats.certificate import Certificate
from tasks.trial import History, best
from tasks.verdict_styles import VERDICTS
from tests.support.histories import certified, search
from tests.support.outcomes import Outcome, night

if TYPE_CHECKING:  # every worker of a test run collects every file
    from matplotlib.figure import Figure

HOSTILE = ("$x_{", "\\frac", "a\nb", "学习率", "\x1b[31m", "%s", "<script>alert(1)</script>", '"><img src=x onerror=y>')


def climb(count: int, seed: int = 1) -> list[Outcome]:
    """Scores that rise from -81 as those of a search do, with some trials cancelled or crashed."""
    draws = random.Random(seed)
    found: list[Outcome] = [-81.0]
    for index in range(1, count):
        score = -81 + 280 * (1 - math.exp(-index / 15)) + draws.gauss(0, 60)
        fate = draws.random()
        found.append("crash" if fate < 0.07 else ("cancelled", score) if fate < 0.2 else score)
    return found


NIGHTS: dict[str, Callable[[], History]] = {
    "300 trials": lambda: night(climb(300)),
    "one far out": lambda: night([-1e6 if i == 5 else o for i, o in enumerate(climb(20))]),
    "huge": lambda: night([1e30, -1e30, 0.0, 5e-324]),
    "every trial crashed": lambda: night(["crash"] * 7),
    "lower is better": lambda: night([2.0, 1e6, 1.5, 1.4, 1e5, 1.3, 1.6, 1.2, 1.0], up=False, error=0.1),
}
CERTIFICATES: dict[str, Callable[[], tuple[History, Certificate]]] = {
    "passed": lambda: (search(8), certified(7, [190, 205, 182], [84, 70, 95])),
    "a champion that crashes": lambda: (search(8), certified(7, [190, None, None], [84, 70, 95])),
    "nothing but crashes": lambda: (search(8), certified(7, [None, None], [None, None])),
}


@functools.cache
def history_of(night: str) -> History:
    return NIGHTS[night]()


def drawn(history: History, name: str = "n", certificates: Sequence[Certificate] = ()) -> Figure:
    up = all(trial.score.higher_is_better for trial in history)
    return draw(history, name, metric="return/mean", higher_is_better=up, certificates=certificates)


@pytest.mark.parametrize("night", NIGHTS)
def test_every_trial_has_a_mark_in_the_order_of_decision_and_the_champion_is_on_the_scale(night: str) -> None:
    history = history_of(night)
    figure = drawn(history)
    axes = figure.axes[0]
    shapes = {shown.plot["marker"] for shown in VERDICTS.values()} | {"d"}
    marks = [x for line in axes.lines if line.get_marker() in shapes for x in line.get_xdata()]

    assert sorted(marks) == list(range(len(history)))
    low, high = axes.get_ylim()
    champion = best(history)
    if champion is not None and champion.score.value is not None and night != "huge":
        assert low <= champion.score.value <= high
    assert png(figure).startswith(b"\x89PNG") and "<svg" in svg(figure, night)


@pytest.mark.parametrize("certificate", CERTIFICATES)
def test_every_fresh_run_is_drawn_in_a_column_of_its_own(certificate: str) -> None:
    history, proof = CERTIFICATES[certificate]()
    main, column = drawn(history, certificates=[proof]).axes
    spots = {
        mark: [y for line in column.lines if line.get_marker() == mark for y in line.get_ydata()] for mark in ("D", "x")
    }

    assert sorted(spots["D"]) == sorted(fresh.score.value for fresh in proof.runs if fresh.score.value is not None)
    assert len(spots["x"]) == len(proof.runs) - len(spots["D"])
    assert column.get_ylim() == main.get_ylim()


def test_a_trial_far_out_does_not_flatten_the_others_and_is_named() -> None:
    history = history_of("one far out")
    low, high = window([one.at for one in plotted(history) if one.at is not None], higher_is_better=True)
    scores = [trial.score.value for trial in history if trial.score.value is not None and trial.score.value > -1e6]

    assert low > -1e6 and low <= min(scores) and max(scores) <= high
    assert max(scores) - min(scores) > 0.5 * (high - low)
    assert "off scale: trial 5" in svg(drawn(history), "progress")


@pytest.mark.parametrize("name", HOSTILE)
def test_parameters_metrics_and_campaigns_may_be_called_anything(name: str) -> None:
    history = night([1.0, 2.0], prefix=name)
    figure = draw(history, name, metric=name, higher_is_better=True)
    text = svg(figure, name)

    assert png(figure) and "\x1b" not in text
    assert "<script" not in text and "<img" not in text
    assert name != "学习率" or name in text
