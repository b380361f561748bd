"""The figures of a report besides the progress: learning curves, and scores along each parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from environments import Environment
from environments.space import Choice
from flows.report.mattered import scored_points
from tasks.describe import short_value
from tasks.plots.canvas import GREY, INK, LARGEST, blank, plain, styled, svg, window
from tasks.trial import TWENTIETHS, History, Run, Trial, baseline
from tasks.verdict_styles import BLUE, FAINT, VERDICTS

SLICES, COLUMNS = 6, 3
"""Parameters whose slices are shown, the most important ones, and how many side by side."""
CURVES, DOTS = 150, 400
"""Curves of other trials, evenly spread over the campaign, and trials in a slice, the newest."""
WIDE = 9.6
"""Inches of a figure's width."""


def curves(environment: Environment, history: History, champion: Trial | None) -> str:
    """The reported metric over the budget: champion, baseline, and the rest; empty if no program reported it."""
    first = baseline(history)
    others = [trial for trial in history if trial not in (first, champion)]
    shown = [(trial, "the other trials", FAINT, 0.8) for trial in others[:: max(math.ceil(len(others) / CURVES), 1)]]
    shown += [(first, "baseline", GREY, 1.8)] if first else []
    shown += [(champion, f"trial {champion.number}, the champion", BLUE, 2.4)] if champion not in (None, first) else []
    lines = [(_points(run), name, colour, width) for trial, name, colour, width in shown for run in trial.runs]
    lines = [line for line in lines if len(line[0]) > 1]
    if not lines:
        return ""
    with styled():
        figure, named = blank(WIDE, 4), set[str]()
        axes = figure.subplots()
        axes.set_ylim(*window([value for points, *_ in lines for _, value in points], environment.higher_is_better))
        for points, name, colour, width in lines:
            label = None if name in named else name
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=width, label=label)
            named.add(name)
        axes.set_xlabel("% of the budget")
        axes.set_title(plain(f"{environment.metric}, as reported in training", 100), loc="left", color=GREY, size=10)
        axes.legend(loc="best")
    return svg(figure, "learning curves")


def _points(run: Run) -> list[tuple[float, float]]:
    """(percent of the budget, value) of what a run reported."""
    known = [(at, value) for at, value in enumerate(run.curve) if value is not None]
    return [(100 * (at + 1) / TWENTIETHS, min(max(value, -LARGEST), LARGEST)) for at, value in known]


def slices(environment: Environment, history: History, champion: Trial | None, importances: Mapping[str, float]) -> str:
    """The scores along each varied parameter, the most important first; empty where none was varied."""
    seen, scored = scored_points(environment, history)
    scored = scored[-DOTS:]
    varied = [(axis, [point[place] for _, point in scored]) for place, axis in enumerate(seen.axes)]
    varied = [(axis, xs) for axis, xs in varied if len(set(xs)) > 1]
    varied.sort(key=lambda one: -importances.get(one[0].name, 0.0))
    if not varied:
        return ""
    trials, values = [trial for trial, _ in scored], [trial.score.value or 0.0 for trial, _ in scored]
    rows, columns = math.ceil(min(len(varied), SLICES) / COLUMNS), min(len(varied), COLUMNS)
    with styled():
        figure = blank(WIDE, 2.6 * rows)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes in grid.flat[len(varied) :]:
            axes.set_visible(False)
        for axes, (axis, xs) in zip(grid.flat, varied, strict=False):
            for x, y, trial in zip(xs, values, trials, strict=True):
                style = VERDICTS[trial.verdict.kind].plot
                axes.plot(x, y, style["marker"], color=style["color"], markersize=5, alpha=0.7)
            for which, face in ((baseline(history), "white"), (champion, BLUE)):
                if which in trials:
                    place = trials.index(which)
                    axes.plot(xs[place], values[place], "o", mec=INK, mfc=face, markersize=8, zorder=6)
            share = f" ({importances[axis.name]:.0%})" if axis.name in importances else ""
            axes.set_xlabel(f"{plain(axis.name, 30)}{share}")
            if axis.choices:
                axes.set_xticks(range(len(axis.choices)), [plain(short_value(one), 12) for one in axis.choices])
                axes.set_xlim(-0.5, len(axis.choices) - 0.5)
            elif not isinstance(axis.parameter, Choice) and axis.parameter.log:
                axes.set_xscale("log")
                ends = np.geomspace(axis.parameter.low, axis.parameter.high, 3)
                axes.set_xticks(ends, [f"{end:.2g}" for end in ends])
                axes.minorticks_off()
            axes.set_ylim(*window(values, environment.higher_is_better))
    return svg(figure, f"{environment.metric} along each parameter")
