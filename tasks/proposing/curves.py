"""Training curves for a proposer: every metric that a program reported, at some shares of its work.

Read from the reports of a trial's first run, which are a program's claims.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from environments import safe_open
from environments.score import METRIC
from tasks.sandbox.progress import PROGRESS_LIMIT, parse_report
from tasks.trial import History, Trial, baseline

SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Of the work that a run got to."""
MOST = 12
"""Metrics of one trial: the objective, and the others by name."""
Table = Mapping[str, tuple[float | None, ...]]
"""Values at SHARES, by the metric's name."""


def tables(campaign: Path, trials: Iterable[Trial], metric: str) -> dict[int, Table]:
    """The curves of these trials by number; those whose reports are gone, or none, are left out."""
    first = {trial.number: trial.runs[0].dir for trial in trials if trial.runs and trial.runs[0].dir}
    every = {number: of(campaign / place, metric) for number, place in first.items()}
    return {number: table for number, table in every.items() if table}


def of(place: Path, metric: str) -> Table:
    """The curves of the run in a trial's directory."""
    try:
        with safe_open.open_file(place / "out" / "progress.jsonl") as file:
            lines = file.read(PROGRESS_LIMIT).split(b"\n")
    except OSError:  # it was pruned, or never wrote any
        return {}
    values: dict[str, list[tuple[float, float]]] = {}
    whole = 0.0
    for report in filter(None, map(parse_report, lines)):
        done, metrics = _number(report.get("step"), report.get("elapsed")), report.get("metrics")
        for name, stated in metrics.items() if done is not None and isinstance(metrics, dict) else ():
            value = _number(stated)
            if done is not None and value is not None and len(name) <= 60 and re.match(METRIC, name):
                values.setdefault(name, []).append((done, value))
                whole = max(whole, done)
    return {
        name: tuple(
            next((value for done, value in reversed(values[name]) if done <= share * whole), None) for share in SHARES
        )
        for name in sorted(values, key=lambda name: (name != metric, name))[:MOST]
    }


def _number(*values: object) -> float | None:
    """The first finite number; JSON has integers that no float holds."""
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
            return float(value)
    return None


def worth_reading(history: History, newest: int, top: int) -> list[Trial]:
    """The baseline, the newest trials, and the best of all."""
    scored = sorted((trial for trial in history if trial.score.value is not None), key=lambda t: -t.score.utility)
    first = baseline(history)
    chosen = [*([first] if first else []), *history[-newest:], *scored[:top]]
    return list({trial.number: trial for trial in chosen}.values())
