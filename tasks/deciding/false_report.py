"""Whether the judge contradicts what a program reported of the objective in training.

A report decides nothing, so a false one gains nothing. But a champion is read, shipped and built upon, and its curves
are looked at. Refused is only what cannot be meant: training draws its actions and counts earlier episodes, so that an
honest report differs from the score too.
"""

from __future__ import annotations

from collections.abc import Sequence

from environments.score import Score
from tasks.deciding.champion_estimate import reference
from tasks.deciding.values import JudgedTrial
from tasks.trial import History, Run

FAR = 10.0
"""A report is false if it is this many times as far from the score as anything that the judge saw is from it, or 0."""


def contradicted(history: History, tried: JudgedTrial) -> str | None:
    """Which report of a trial the judge contradicts; None if none, or if the baseline's own reports differ as much."""
    first = reference(history)
    assert first is not None, "there is a champion"
    again = [(rerun.run, rerun.score) for rerun in first.reruns if rerun.of == first.number]  # such as a calibration
    known = [*zip(first.runs, first.score.each, strict=False), *again]
    units = [unit for _, score in known for unit in score.units]
    if any(_is_far(run, score, units) for run, score in known):
        return None
    for run, score in zip(tried.runs, tried.score.each, strict=False):
        if _is_far(run, score, units):
            seen = f"{score.value:.4g} ({min(score.units):.4g} to {max(score.units):.4g})"
            return (
                f"reported {run.reported:.4g} of the objective at the end of training, and was judged {seen}: "
                "report what the environment returned"
            )
    return None


def _is_far(run: Run, score: Score, baseline: Sequence[float]) -> bool:
    if run.reported is None or score.value is None or not score.units:
        return False
    seen = (0.0, *score.units, *baseline)
    return abs(run.reported - score.value) > FAR * max(abs(one - score.value) for one in seen)
