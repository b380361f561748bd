"""What a comparison shows: a verdict, a sentence, the runs on a line in the terminal, and a picture of them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from environments.judges import BlockUnits
from environments.score import Score
from flows.cli import single_runs
from flows.views.terminal import clean
from tasks.numbers import number, probability
from tasks.stats.permutation import CONFIDENCE, Comparison
from tasks.system.files import write_atomic

Verdict = Literal["better", "worse", "not shown"]
"""Of A."""
ABOUT: dict[BlockUnits, str] = {
    "fresh": "each run was judged on fresh units",
    "disjoint": "each run was judged on questions of its own: this is about questions like those of the pool",
    "same": "all runs were judged on the same units: this is about these units, and may be otherwise on others",
}
"""What the result is about."""
WIDTH = 50
"""Of the line on which runs stand, in characters."""


def verdict(comparison: Comparison | None, a: Sequence[Score], b: Sequence[Score], level: float) -> Verdict:
    """Whether A is better. Of a side with a crashed run nothing is known but its lucky runs: it is not shown to be."""
    if comparison is None or comparison.p > level or not comparison.gain:
        return "not shown"
    is_a = comparison.gain > 0
    if any(score.value is None for score in (a if is_a else b)):
        return "not shown"
    return "better" if is_a else "worse"


def sentence(
    test: Comparison | None, verdict: Verdict, names: Sequence[str], a: Sequence[Score], b: Sequence[Score],
    units: BlockUnits,
) -> str:  # fmt: skip
    """Which side is better and by at least how much, what that is about, and which runs crashed."""
    crashes = [
        f"{len(errors)} of {len(scores)} runs of {arm} crashed ({single_runs.first_line(errors[0])})"
        for arm, scores in (("A", a), ("B", b))
        if (errors := [score.error for score in scores if score.value is None])
    ]
    if test is None:
        return "\n".join(["nothing to compare: each side needs two runs with a score", *crashes])
    is_a, gain = test.gain >= 0, number(abs(test.gain))
    ahead, (winner, loser) = ("A", names) if is_a else ("B", names[::-1])
    counts = " v ".join(str(sum(score.value is not None for score in arm)) for arm in (a, b))
    facts, least = f"{counts} fresh runs, {probability(test.p)} two-sided", ""
    if test.low is not None and test.high is not None:
        low, high = map(number, (test.low, test.high) if is_a else (-test.high, -test.low))
        facts, least = f"{100 * CONFIDENCE:.0f} % interval {low}..{high}, {facts}", f", at least {low}"
    if verdict == "not shown":
        lead = f"{ahead} is ahead by {gain}" if test.gain else "both have the same mean"
        first = f"no difference shown: {lead} ({facts})"
    else:
        first = f"{ahead} is better by {gain}{least} ({facts}): {clean(winner)} beats {clean(loser)}"
    biased = [f"{line}: it is compared without them, which favours it" for line in crashes]
    return "\n".join([first, ABOUT[units], *biased])


def strip(document: Mapping[str, Any]) -> list[str]:
    """The runs of both arms on one scale, a line each: `o` is a run, or several at one place, `|` the mean."""
    arms = _values(document)
    every = [value for values in arms.values() for value in values]
    if not every:
        return []
    low, span = min(every), max(every) - min(every)
    lines = []
    for arm, values in arms.items():
        mean, line = document[arm]["score"], [" "] * WIDTH
        for mark, value in [("|", mean), *(("o", value) for value in values)] if values else []:
            line[round((value - low) / span * (WIDTH - 1)) if span else WIDTH // 2] = mark
        lines.append(f"{arm.upper()} [{''.join(line)}]  {f'mean {number(mean)}' if values else 'no score'}")
    return lines


def draw(document: Mapping[str, Any], path: Path) -> Path | None:
    """A picture of the runs and their means; None while there is no score."""
    from tasks.plots import canvas

    arms = _values(document)
    if not any(arms.values()):
        return None
    with canvas.styled():
        figure = canvas.blank(7.0, 2.6)
        axes = figure.subplots()
        for row, (arm, values) in enumerate(arms.items()):
            axes.plot(values, [-row] * len(values), "o", color=canvas.GREY, alpha=0.7)
            if values:
                axes.plot([document[arm]["score"]], [-row], "|", color=canvas.GREEN, markersize=26, markeredgewidth=3)
        axes.set_yticks([0, -1], [canvas.plain(f"{arm.upper()}: {document[arm]['named']}", 40) for arm in arms])
        axes.set_ylim(-1.6, 0.6)
        axes.set_xlabel(canvas.plain(f"{document['metric']} of each fresh run; green: the mean"))
        title = textwrap.fill(canvas.plain(document["words"].partition("\n")[0], 300), 110)
        axes.set_title(title, fontsize=8, loc="left")
        content = canvas.png(figure)
    write_atomic(path, content)
    return path


def _values(document: Mapping[str, Any]) -> dict[str, list[float]]:
    runs = [run for run in document["runs"] if run["score"] is not None]
    return {arm: [run["score"] for run in runs if run["arm"] == arm.upper()] for arm in ("a", "b")}
