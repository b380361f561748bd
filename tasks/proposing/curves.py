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
    found: dict[int, Table] = {}
    for trial in trials:
        if trial.runs and trial.runs[0].dir and (table := of(campaign / trial.runs[0].dir, metric)):
            found[trial.number] = table
    return found


def of(place: Path, metric: str) -> Table:
    """The curves of the run in a trial's directory."""
    try:
        with safe_open.open_file(place / "out" / "progress.jsonl") as file:
            lines = file.read(PROGRESS_LIMIT).split(b"\n")
    except OSError:  # it was pruned, or never wrote any
        return {}
    rows: list[tuple[float, dict[str, float]]] = []
    for report in filter(None, map(parse_report, lines)):
        done = _number(report.get("step"), report.get("elapsed"))
        if done is not None and (metrics := _metrics(report)):
            rows.append((done, metrics))
    whole = max((done for done, _ in rows), default=0.0)
    names = sorted({name for _, values in rows for name in values}, key=lambda name: (name != metric, name))
    table: dict[str, tuple[float | None, ...]] = {}
    for name in names[:MOST]:
        known = [(done, values[name]) for done, values in rows if name in values]
        table[name] = tuple(
            next((value for done, value in reversed(known) if done <= share * whole), None) for share in SHARES
        )
    return table


def _metrics(report: dict[str, object]) -> dict[str, float]:
    given = report.get("metrics")
    return {
        name: number
        for name, value in (given.items() if isinstance(given, dict) else ())
        if (number := _number(value)) is not None and len(name) <= 60 and re.match(METRIC, name)
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
