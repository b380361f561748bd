"""The figures of a campaign: what is drawn at which height, that any name and number is, and that nothing acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tasks.plots.canvas import png, svg
from tasks.plots.progress import draw
from tasks.trial import History, best
from tasks.verdict_styles import VERDICTS
from tests.support.histories import certified, night, search

if TYPE_CHECKING:  # every worker of a test run collects every file
    from matplotlib.figure import Figure

HOSTILE = ("$x_{\\frac", "a\nb %s", "学习率", "\x1b[31m<script>alert(1)</script>", '"><img src=x onerror=y>')
NIGHTS = {
    "60 trials": search(60), "one far out": night(-81, -60, -20, 10, 30, -1e6, 60, 50, 90, 70, 95),
    "huge": night(1e30, -1e30, 0.0, 5e-324), "every trial crashed": night(*7 * [None]),
    "lower is better": search(12, sign=-1),
}  # fmt: skip


def drawn(history: History, **facts: object) -> Figure:
    up = all(trial.score.higher_is_better for trial in history)
    return draw(history, "return/mean", up, **facts)


@pytest.mark.parametrize("kind", NIGHTS)
def test_every_trial_has_a_mark_in_the_order_of_decision_and_the_champion_is_on_the_scale(kind: str) -> None:
    history = NIGHTS[kind]
    figure = drawn(history)
    axes = figure.axes[0]
    shapes = {shown.plot["marker"] for shown in VERDICTS.values()} | {"d"}
    marks = [x for line in axes.lines if line.get_marker() in shapes for x in line.get_xdata()]

    assert sorted(marks) == list(range(len(history)))
    low, high = axes.get_ylim()
    champion = best(history)
    if champion is not None and champion.score.value is not None and kind != "huge":
        assert low <= champion.score.value <= high
        assert low > -1e6, "a trial far out does not flatten the others"
    assert png(figure).startswith(b"\x89PNG")
    assert (kind != "one far out" or high < 300) and ("off scale: trial 5" in svg(figure, kind)) == (
        kind == "one far out"
    )


@pytest.mark.parametrize("mine", [[190, 205, 182], [None, 205, None], [None, None]])
def test_every_fresh_run_is_drawn_in_a_column_of_its_own(mine: list[float | None]) -> None:
    proof = certified(7, mine, [84, 70, 95] if any(mine) else [None])
    main, column = drawn(search(8), certificates=[proof]).axes
    spots = {
        mark: [y for line in column.lines if line.get_marker() == mark for y in line.get_ydata()] for mark in ("D", "x")
    }

    assert sorted(spots["D"]) == sorted(fresh.score.value for fresh in proof.runs if fresh.score.value is not None)
    assert len(spots["x"]) == len(proof.runs) - len(spots["D"])
    assert column.get_ylim() == main.get_ylim()


def test_metrics_may_be_called_anything() -> None:
    for name in HOSTILE:
        figure = draw(night(1.0, 2.0), metric=name, higher_is_better=True)
        text = svg(figure, name)
        assert png(figure) and not [acts for acts in ("\x1b", "<script", "<img") if acts in text]
        assert name != "学习率" or name in text
