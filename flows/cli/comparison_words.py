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
    comparison: Comparison | None, verdict: Verdict, names: Sequence[str], a: Sequence[Score], b: Sequence[Score],
    units: BlockUnits,
) -> str:  # fmt: skip
    """Which arm is better and by at least how much, what that is about, and which runs crashed."""
    crashes = []
    for arm, scores in (("A", a), ("B", b)):
        if missing := [score for score in scores if score.value is None]:
            why = single_runs.first_line(missing[0])
            crashes.append(f"{len(missing)} of {len(scores)} runs of {arm} crashed ({why})")
    if comparison is None:
        return "\n".join(["nothing to compare: each side needs two runs with a score", *crashes])
    biased = [f"{line}: it is compared without them, which favours it" for line in crashes]
    gain, low, high = abs(comparison.gain), comparison.low, comparison.high
    is_a = comparison.gain >= 0
    counts = " v ".join(str(sum(score.value is not None for score in arm)) for arm in (a, b))
    facts, least = f"{counts} fresh runs, {probability(comparison.p)} two-sided", ""
    if low is not None and high is not None:
        ends = (low, high) if is_a else (-high, -low)
        facts = f"{100 * CONFIDENCE:.0f} % interval {number(ends[0])}..{number(ends[1])}, {facts}"
        least = f", at least {number(ends[0])}"
    if verdict == "not shown":
        lead = f"{'AB'[not is_a]} is ahead by {number(gain)}" if comparison.gain else "both have the same mean"
        return "\n".join([f"no difference shown: {lead} ({facts})", ABOUT[units], *biased])
    winner, loser = names if is_a else (names[1], names[0])
    better = f"{'AB'[not is_a]} is better by {number(gain)}{least} ({facts})"
    return "\n".join([f"{better}: {clean(winner)} beats {clean(loser)}", ABOUT[units], *biased])


def strip(document: Mapping[str, Any]) -> list[str]:
    """The runs of both arms on one scale, a line each: `o` a run, a digit several, `|` the mean."""
    arms = _values(document)
    every = [value for values in arms.values() for value in values]
    if not every:
        return []
    low, high = min(every), max(every)

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (WIDTH - 1)) if high > low else WIDTH // 2

    lines = []
    for arm, values in arms.items():
        line = [" "] * WIDTH
        if values:
            line[place(document[arm]["score"])] = "|"
        for at in {place(value) for value in values}:
            many = sum(place(value) == at for value in values)
            line[at] = "o" if many == 1 else str(min(many, 9))
        mean = f"  mean {number(document[arm]['score'])}" if values else "  no score"
        lines.append(f"{arm.upper()} [{''.join(line)}]{mean}")
    ends = number(low), number(high)
    return [*lines, f"   {ends[0]}{ends[1]:>{WIDTH - len(ends[0])}}"] if high > low else lines


def draw(document: Mapping[str, Any], path: Path) -> Path | None:
    """A picture of the runs, means and the interval of the difference; None while there is no score."""
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
        names = [canvas.plain(f"{arm.upper()}: {document[arm]['named']}", 40) for arm in arms]
        axes.set_yticks([0, -1], names)
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
