"""A campaign in one figure: every trial in the order of decision, the champion estimate, and the fresh runs beside.

The band around the champion estimate is one standard deviation between training runs. Verdicts differ in shape as well
as in colour; trials without a score lie at the lower edge, and a certificate's fresh runs in a column at the right.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasks.describe import interval, mean_of
from tasks.numbers import number
from tasks.plots.canvas import GREY, blank, styled, window
from tasks.stats.certificate import Certificate
from tasks.stats.champion import run_sd
from tasks.stats.design import Arm
from tasks.system.redact import one_line
from tasks.trial import History, best, measured_each
from tasks.verdict_styles import BLUE, VERDICTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS: dict[str, Any] = {"linestyle": "none", "clip_on": False, "zorder": 5}
Heights = list[float | None]


def heights(history: History) -> Heights:
    """The mean over the training runs of each trial, or the last report of a cancelled one; None without either."""
    found: Heights = []
    for trial, scores in zip(history, measured_each(history).values(), strict=True):
        values = [score.value for score in scores if score.value is not None]
        is_cancelled = trial.verdict.kind == "cancelled"
        found.append(trial.runs[-1].reported if is_cancelled else statistics.fmean(values) if values else None)
    return found


def draw(history: History, metric: str, higher_is_better: bool, certificates: Sequence[Certificate] = ()) -> Figure:
    """Draw a campaign. (certificates: those of its own environment, oldest first)"""
    newest = certificates[-1] if certificates else None
    marks, line = heights(history), _estimates(history)
    always = [run.score.value for run in newest.runs if run.score.value is not None] if newest else []
    kept = [one for one, trial in zip(marks, history, strict=True) if trial.verdict.kind == "keep"]
    always += [one for one in kept if one is not None]
    always += [height for _, level, sd in line[-1:] for height in (level - sd, level + sd)]
    low, high = window([one for one in marks if one is not None], higher_is_better, always)
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
        _levels(axes, mean_of(history, 0), line)
        _marks(axes, history, marks, low, high, floor)
        if newest:
            _column(sides[0, 1], newest, floor)
        facts = one_line(f"{metric}, {'higher' if higher_is_better else 'lower'} is better", 100)
        axes.set_title(facts, loc="left", color=GREY, size=10).set_in_layout(False)  # or axes make room for its width
        handles = [handle for one in sides[0] for handle in one.get_legend_handles_labels()[0]]
        picture.legend(handles=handles, loc="outside lower left", ncols=5)
    return picture


def _estimates(history: History) -> NDArray[np.float64]:
    """The champion estimate whenever it changed, in the metric's own sign.

    Shape (points, 3): place of the trial after which it was made, estimate, standard deviation between training runs.
    """
    rows = []
    for place, trial in enumerate(history):
        known = tuple(one for at, one in enumerate(history) if at <= place or one.number == 0)
        if (trial.verdict.kind == "keep" or trial.reruns) and (champion := best(known)):
            rows.append((place, mean_of(known, champion.number), run_sd(known)))
    points = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return points[np.isfinite(points).all(1)]


def _levels(axes: Axes, baseline: float | None, line: NDArray[np.float64]) -> None:
    """The baseline, and the champion estimate in its band; their values are in the legend."""
    if baseline is not None:
        axes.axhline(baseline, color=GREY, linewidth=1.4, dashes=(5, 4), zorder=2, label=f"baseline {number(baseline)}")
    if len(line):
        xs, ys, sds = np.vstack([line, [axes.get_xlim()[1], *line[-1, 1:]]]).T
        label = f"champion estimate {number(float(ys[-1]))}"
        axes.plot(xs, ys, color=BLUE, linewidth=2.2, drawstyle="steps-post", zorder=3, label=label)
        band: dict[str, Any] = {"step": "post", "color": BLUE, "alpha": 0.13, "linewidth": 0, "zorder": 1}
        axes.fill_between(xs, ys - sds, ys + sds, label="±1 sd between runs", **band)


def _marks(axes: Axes, history: History, marks: Heights, low: float, high: float, floor: float) -> None:
    """A mark for every trial, at the edge for those off the scale."""
    size = float(np.clip(11 - 1.6 * math.log2(max(len(marks), 8) / 8), 4.5, 11))
    far = [(place, at) for place, at in enumerate(marks) if at is not None and not low <= at <= high]
    inside = [(place, at) for place, at in enumerate(marks) if at is None or low <= at <= high]
    for kind, style in VERDICTS.items():
        if spots := [(place, at) for place, at in inside if history[place].verdict.kind == kind]:
            mark = {"markeredgewidth": 0.15 * size, **style.plot, "markersize": size * style.plot["markersize"]}
            ys = [floor if at is None else at for _, at in spots]
            axes.plot([place for place, _ in spots], ys, **MARKS, **mark)
    if far:
        worst, at = max(far, key=lambda one: abs(one[1]))
        more = f" and {len(far) - 1} more" * (len(far) > 1)
        label = f"off scale: trial {history[worst].number} at {number(at)}{more}"
        edges = [floor if at < low else high for _, at in far]
        axes.plot([place for place, _ in far], edges, marker="d", markersize=size, color=GREY, label=label, **MARKS)


def _column(axes: Axes, certificate: Certificate, floor: float) -> None:
    """Every fresh run, the mean of each arm, and the interval of the test from the baseline's mean."""
    arms: tuple[tuple[Arm, str, str], ...] = (
        ("champion", f"trial {certificate.champion}", BLUE),
        ("baseline", "baseline", GREY),
    )
    axes.set_xticks([0, 1], [f"{name}\n{number(certificate.mean(arm))}" for arm, name, _ in arms])
    axes.set_xlim(-0.6, 1.6)
    axes.set_xlabel("fresh runs" + ", and those of the search" * bool(certificate.reused))
    for x, (arm, _, colour) in enumerate(arms):
        runs = [run.score for run in certificate.reused if arm == "baseline"]
        scores, mean = [score.value for score in (*certificate.scores(arm), *runs)], certificate.mean(arm)
        steps = min(0.16, 0.8 / max(len(scores), 1)) * (np.arange(len(scores)) - (len(scores) - 1) / 2)
        for spot, score in zip(x + steps, scores, strict=True):
            mark: dict[str, Any] = {"marker": "x" if score is None else "D", "markersize": 8 if score is None else 4.5}
            axes.plot([spot], [floor if score is None else score], color=colour, **MARKS, **mark)
        if mean is not None:
            axes.plot([x], [mean], color=colour, marker="_", markersize=40, markeredgewidth=2.2, **MARKS)
    ends, mean = interval(certificate), certificate.mean("baseline")
    if ends and mean is not None:
        style: dict[str, Any] = {"color": BLUE, "alpha": 0.16, "linewidth": 0, "label": "the test's interval"}
        axes.fill_between([-0.45, 0.45], mean + ends[0], mean + ends[1], **style)
