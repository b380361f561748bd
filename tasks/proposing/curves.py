"""Training curves for a proposer: every metric that a program reported, at some shares of its work.

Read from the reports of a trial's first run, which are a program's claims. A long file is read at so many lines.
"""

from __future__ import annotations

import math
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
SAMPLES = 200
"""Lines that are read of a file."""
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
            lines = file.read(PROGRESS_LIMIT).splitlines()
    except OSError:  # it was pruned, or never wrote any
        return {}
    step = max(1, math.ceil(len(lines) / SAMPLES))
    places = sorted({*range(0, len(lines), step), len(lines) - 1} - {-1})
    reports = [report for place in places if (report := parse_report(lines[place]))]
    rows = [(_done(report), _metrics(report)) for report in reports]
    return _table([(done, values) for done, values in rows if done is not None and values], metric)


def _table(rows: list[tuple[float, dict[str, float]]], metric: str) -> Table:
    whole = max((done for done, _ in rows), default=0.0)
    names = sorted({name for _, values in rows for name in values}, key=lambda name: (name != metric, name))
    table: dict[str, tuple[float | None, ...]] = {}
    for name in names[:MOST]:
        known = [(done, values[name]) for done, values in rows if name in values]
        table[name] = tuple(
            next((value for done, value in reversed(known) if done <= share * whole), None) for share in SHARES
        )
    return table


def _done(report: dict[str, object]) -> float | None:
    """How far it had got: its steps, or else its seconds."""
    known = (_number(report.get(name)) for name in ("step", "elapsed"))
    return next((done for done in known if done is not None), None)


def _metrics(report: dict[str, object]) -> dict[str, float]:
    given = report.get("metrics")
    return {
        name: number
        for name, value in (given.items() if isinstance(given, dict) else ())
        if (number := _number(value)) is not None and len(name) <= 60 and re.match(METRIC, name)
    }


def _number(value: object) -> float | None:
    """A finite number; JSON has integers that no float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= sys.float_info.max else None  # NaN compares as false


def worth_reading(history: History, newest: int, top: int) -> list[Trial]:
    """The baseline, the newest trials, and the best of all."""
    scored = sorted((trial for trial in history if trial.score.value is not None), key=lambda t: -t.score.utility)
    first = baseline(history)
    chosen = [*([first] if first else []), *history[-newest:], *scored[:top]]
    return list({trial.number: trial for trial in chosen}.values())
