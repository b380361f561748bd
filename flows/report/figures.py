"""The figures of a report besides the progress: learning curves, and scores along each parameter, with its share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from environments import Environment
from environments.space import Choice
from tasks.describe import short_value
from tasks.plots.canvas import GREY, INK, LARGEST, blank, styled, svg, window
from tasks.proposing.points import Observations, Point
from tasks.system.redact import one_line
from tasks.trial import TWENTIETHS, History, Run, Trial, baseline
from tasks.verdict_styles import BLUE, FAINT, VERDICTS

SLICES, COLUMNS = 6, 3
"""Parameters whose slices are shown, the most important ones, and how many side by side."""
NEWEST = 200
"""Trials whose curves and scores are shown and explained: forests of a thousand would take minutes."""
WIDE = 9.6
"""Inches of a figure's width."""
FEWEST = 12
"""Scored trials below which an importance would be luck."""


def curves(environment: Environment, history: History, champion: Trial | None) -> str:
    """The reported metric over the budget: champion, baseline, and the rest; empty if no program reported it."""
    first = baseline(history)
    others = [trial for trial in history[-NEWEST:] if trial not in (first, champion)]
    shown = [(trial, "the other trials", FAINT, 0.8) for trial in others]
    shown += [(first, "baseline", GREY, 1.8)] if first else []
    shown += [(champion, f"trial {champion.number}, the champion", BLUE, 2.4)] if champion not in (None, first) else []
    lines = [(_points(run), name, colour, width) for trial, name, colour, width in shown for run in trial.runs]
    lines = [line for line in lines if len(line[0]) > 1]
    if not lines:
        return ""
    with styled():
        figure = blank(WIDE, 4)
        axes = figure.subplots()
        axes.set_ylim(*window([value for points, *_ in lines for _, value in points], environment.higher_is_better))
        for points, name, colour, width in lines:
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=width, label=name)
        axes.set_xlabel("% of the budget")
        axes.set_title(one_line(f"{environment.metric}, as reported in training", 100), loc="left", color=GREY, size=10)
        handles, names = axes.get_legend_handles_labels()
        axes.legend(handles=[*dict(zip(names, handles, strict=True)).values()], loc="best")
    return svg(figure, "learning curves")


def _points(run: Run) -> list[tuple[float, float]]:
    """(percent of the budget, value) of what a run reported."""
    known = [(at, value) for at, value in enumerate(run.curve) if value is not None]
    return [(100 * (at + 1) / TWENTIETHS, min(max(value, -LARGEST), LARGEST)) for at, value in known]


def slices(environment: Environment, history: History, champion: Trial | None, importances: Mapping[str, float]) -> str:
    """The scores along each varied parameter, the most important first; empty where none was varied."""
    seen, scored = _scored_points(environment, history)
    values = [trial.score.value or 0.0 for trial, _ in scored]
    along = [(name, [point[place] for _, point in scored]) for place, name in enumerate(seen.space)]
    varied = sorted(
        (one for one in along if len({*map(repr, one[1])}) > 1), key=lambda one: -importances.get(one[0], 0.0)
    )
    if not varied:
        return ""
    rows, columns = math.ceil(min(len(varied), SLICES) / COLUMNS), min(len(varied), COLUMNS)
    with styled():
        figure = blank(WIDE, 2.6 * rows)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes in grid.flat[len(varied) :]:
            axes.set_visible(False)
        for axes, (name, along_it) in zip(grid.flat, varied, strict=False):
            parameter = seen.space[name]
            xs = [parameter.rank(one) for one in along_it] if isinstance(parameter, Choice) else along_it
            for x, y, (trial, _) in zip(xs, values, scored, strict=True):
                style = VERDICTS[trial.verdict.kind].plot
                axes.plot(x, y, style["marker"], color=style["color"], markersize=5, alpha=0.7)
                if trial in (baseline(history), champion):
                    axes.plot(x, y, "o", mec=INK, mfc=BLUE if trial is champion else "white", markersize=8, zorder=6)
            share = f" ({importances[name]:.0%})" if name in importances else ""
            axes.set_xlabel(f"{one_line(name, 30)}{share}")
            if isinstance(parameter, Choice):
                ticks = [one_line(short_value(one), 14) for one in parameter.ranked]
                axes.set_xticks(range(len(ticks)), ticks)
            elif parameter.log:
                axes.set_xscale("log")
                ends = np.geomspace(parameter.low, parameter.high, 3)
                axes.set_xticks(ends, [f"{end:.2g}" for end in ends])  # names may hold $, so mathtext is off
                axes.minorticks_off()
            axes.set_ylim(*window(values, environment.higher_is_better))
    return svg(figure, f"{environment.metric} along each parameter")


def importances(environment: Environment, history: History) -> dict[str, float]:
    """Each varied parameter's share of the variance of the scores' ranks by Optuna's fANOVA, the greatest first; empty
    where they cannot be told apart. Of ranks, since one trial that diverged would explain everything.
    """
    tried = [trial.proposal.params for trial, _ in _scored_points(environment, history)[1]]
    varied = {name: one for name, one in environment.space.items() if len({params[name] for params in tried}) > 1}
    seen, scored = _scored_points(environment.model_copy(update={"space": varied}), history)
    _, ranks = np.unique([trial.score.utility for trial, _ in scored], return_inverse=True)
    if len(seen.space) < 2 or len(scored) < FEWEST or not ranks.any():
        return {}
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances
    from optuna.samplers import RandomSampler

    from tasks.proposing.optuna_study import study  # imports Optuna

    only = replace(seen, decided=tuple(scored), under_way=())
    made = study(only, [float(rank) for rank in ranks], RandomSampler)
    return get_param_importances(made, evaluator=FanovaImportanceEvaluator(seed=0))


def _scored_points(environment: Environment, history: History) -> tuple[Observations, list[tuple[Trial, Point]]]:
    """The trials as points of the space, and the newest of them that have a score."""
    seen = Observations.of(environment.space, history, {})
    return seen, seen.scored[-NEWEST:]
