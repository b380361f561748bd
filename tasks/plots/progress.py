"""A campaign in one figure: every trial in the order of decision, the champion estimate, and the fresh runs beside.

    picture = draw(history, "cartpole-1", "return/mean", higher_is_better=True)

The band around the champion estimate is one standard deviation between training runs. Verdicts differ in shape as well
as in colour; trials without a score lie at the lower edge, and a certificate's fresh runs in a column at the right.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasks.describe import headline, interval, outcome
from tasks.numbers import number
from tasks.plots.canvas import GREY, INK, blank, plain, styled, window
from tasks.stats.certificate import Certificate
from tasks.stats.champion import champion_estimate
from tasks.stats.design import Arm
from tasks.trial import History, Trial, measured_each
from tasks.verdict_styles import BLUE, VERDICTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS: dict[str, Any] = {"linestyle": "none", "clip_on": False, "zorder": 5}


@dataclass(frozen=True)
class PlottedTrial:
    """A trial and the height of its mark."""

    trial: Trial
    place: int
    """In the order of decision, from 0."""
    at: float | None
    """Mean over its training runs, or the last report of a cancelled trial; None without either."""
    error: float = 0.0
    """Standard error of the mean: over training runs, or over units for a single run; 0 if unknown."""


def plotted(history: History) -> tuple[PlottedTrial, ...]:
    """Every trial with its height, in the order of decision."""
    scores, points = measured_each(history), []
    for place, trial in enumerate(history):
        values = [score.value for score in scores[trial.number] if score.value is not None]
        if trial.verdict.kind == "cancelled":
            points.append(PlottedTrial(trial, place, trial.runs[-1].reported))
        elif trial.score.value is None or not values:
            points.append(PlottedTrial(trial, place, None))
        else:
            error = statistics.stdev(values) / math.sqrt(len(values)) if values[1:] else trial.score.se or 0.0
            points.append(PlottedTrial(trial, place, statistics.fmean(values), error))
    return tuple(points)


def _estimates(history: History) -> NDArray[np.float64]:
    """The champion estimate whenever it changed, in the metric's own sign.

    Shape (points, 3): place of the trial after which it was made, estimate, standard deviation between training runs.
    """
    sign = 1 if all(trial.score.higher_is_better for trial in history) else -1
    rows = []
    for place, trial in enumerate(history):
        known = tuple(one for at, one in enumerate(history) if at <= place or one.number == 0)
        if (trial.verdict.kind == "keep" or trial.reruns) and (estimate := champion_estimate(known)):
            rows.append((place, sign * estimate.level, estimate.sd))
    points = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return points[np.isfinite(points).all(1)]


def draw(
    history: History, campaign: str, metric: str, higher_is_better: bool, certificates: Sequence[Certificate] = (),
    titled: bool = True,
) -> Figure:  # fmt: skip
    """Draw a campaign.

    Args:
        certificates: Those of its own environment, oldest first.
        titled: Whether the result stands above, for a picture that is seen alone.
    """
    newest = certificates[-1] if certificates else None
    trials, line = plotted(history), _estimates(history)
    always = [run.score.value for run in newest.runs if run.score.value is not None] if newest else []
    always += [one.at for one in trials if one.at is not None and one.trial.verdict.kind == "keep"]
    always += [height for _, level, sd in line[-1:] for height in (level - sd, level + sd)]
    low, high = window([one.at for one in trials if one.at is not None], higher_is_better, always)
    floor = low - 0.08 * (high - low)
    with styled():
        picture = blank(9.6, 5.4)
        widths = [5, 1] if newest else [5]
        sides: Any = picture.subplots(1, len(widths), sharey=True, squeeze=False, width_ratios=widths)
        axes = sides[0, 0]
        axes.set_ylim(floor - 0.04 * (high - low), high)
        axes.set_xlim(-0.7, max(len(history), 8) - 0.3)
        stride = math.ceil(max(len(history), 1) / 20)
        axes.set_xticks(range(0, len(history), stride), [str(trial.number) for trial in history[::stride]])
        axes.set_xlabel("trial, in the order of decision")
        _levels(axes, trials, line)
        _marks(axes, trials, low, high, floor)
        if newest:
            _column(sides[0, 1], newest, floor)
        facts = plain(f"{metric}, {'higher' if higher_is_better else 'lower'} is better", 100)
        if titled:
            words = [headline(history, campaign, certificates), *([outcome(newest)] if newest else [])]
            picture.suptitle("\n".join(plain(one, 150) for one in words), x=0.01, ha="left", color=INK, size=9)
        axes.set_title(facts, loc="left", color=GREY, size=10).set_in_layout(False)  # or axes make room for its width
        handles = [handle for one in sides[0] for handle in one.get_legend_handles_labels()[0]]
        picture.legend(handles=handles, loc="outside lower left", ncols=5)
    return picture


def _levels(axes: Axes, trials: Sequence[PlottedTrial], line: NDArray[np.float64]) -> None:
    """The baseline, and the champion estimate in its band; their values are in the legend."""
    if (start := next((point.at for point in trials if point.trial.number == 0), None)) is not None:
        axes.axhline(start, color=GREY, linewidth=1.4, dashes=(5, 4), zorder=2, label=f"baseline {number(start)}")
    if len(line):
        xs, ys, sds = np.vstack([line, [axes.get_xlim()[1], *line[-1, 1:]]]).T
        label = f"champion estimate {number(float(ys[-1]))}"
        axes.plot(xs, ys, color=BLUE, linewidth=2.2, drawstyle="steps-post", zorder=3, label=label)
        band: dict[str, Any] = {"step": "post", "color": BLUE, "alpha": 0.13, "linewidth": 0, "zorder": 1}
        axes.fill_between(xs, ys - sds, ys + sds, label="±1 sd between runs", **band)


def _marks(axes: Axes, trials: Sequence[PlottedTrial], low: float, high: float, floor: float) -> None:
    """A mark for every trial, with the error of its score; at the edge for those off the scale."""
    size = float(np.clip(11 - 1.6 * math.log2(max(len(trials), 8) / 8), 4.5, 11))
    far = [(one.place, one.at, one.trial.number) for one in trials if one.at is not None and not low <= one.at <= high]
    inside = [one for one in trials if one.at is None or low <= one.at <= high]
    for kind, style in VERDICTS.items():
        if spots := [one for one in inside if one.trial.verdict.kind == kind]:
            heights = [floor if one.at is None else one.at for one in spots]
            mark = {"markeredgewidth": 0.15 * size, **style.plot, "markersize": size * style.plot["markersize"]}
            axes.plot([one.place for one in spots], heights, **MARKS, **mark)
    if bars := [(one.place, one.at, one.error) for one in inside if one.error]:
        bar: dict[str, Any] = {"fmt": "none", "ecolor": GREY, "elinewidth": 1, "alpha": 0.6, "zorder": 4}
        xs, ys, errors = zip(*bars, strict=True)
        axes.errorbar(xs, ys, errors, label="±1 se", **bar)
    if far:
        _, worst, trial = max(far, key=lambda one: abs(one[1]))
        label = f"off scale: trial {trial} at {number(worst)}{f' and {len(far) - 1} more' * (len(far) > 1)}"
        edges = [floor if at < low else high for _, at, _ in far]
        axes.plot([place for place, *_ in far], edges, marker="d", markersize=size, color=GREY, label=label, **MARKS)


def _column(axes: Axes, certificate: Certificate, floor: float) -> None:
    """Every run that was compared, the mean of each arm, and the interval of the test from the baseline's mean."""
    arms = tuple[tuple[Arm, str, str], ...](
        (("champion", f"trial {certificate.champion}", BLUE), ("baseline", "baseline", GREY))
    )
    means = {arm: certificate.mean(arm) for arm, *_ in arms}
    axes.set_xticks([0, 1], [f"{name}\n{number(means[arm])}" for arm, name, _ in arms])
    axes.set_xlim(-0.6, 1.6)
    axes.set_xlabel("fresh runs")
    for x, (arm, _, colour) in enumerate(arms):
        scores = [score.value for score in certificate.scores(arm)]
        spots = [x + (n - (len(scores) - 1) / 2) * min(0.16, 0.8 / len(scores)) for n in range(len(scores))]
        _spots(axes, spots, scores, colour, marker="D", markersize=4.5)
        _spots(axes, spots, [floor if one is None else None for one in scores], colour, marker="x", markersize=8)
        _spots(axes, [x], [means[arm]], colour, marker="_", markersize=40, markeredgewidth=2.2)
    reused = [run.score.value for run in certificate.reused]
    _spots(axes, [1.45] * len(reused), reused, GREY, marker="D", markersize=4.5, fillstyle="none")
    ends, mean = interval(certificate), means["baseline"]
    if ends and mean is not None:
        style: dict[str, Any] = {"color": BLUE, "alpha": 0.16, "linewidth": 0, "label": "the test's interval"}
        axes.fill_between([-0.45, 0.45], mean + ends[0], mean + ends[1], **style)


def _spots(axes: Axes, xs: Sequence[float], heights: Sequence[float | None], colour: str, **style: Any) -> None:
    """Marks at the heights that there are; an empty line would count as a point at the figure's corner."""
    spots = [(x, height) for x, height in zip(xs, heights, strict=True) if height is not None]
    if spots:
        axes.plot(*zip(*spots, strict=True), color=colour, **{**MARKS, "zorder": 6}, **style)
