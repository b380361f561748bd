"""results.tsv of the repositories in which an agent edits files and commits: a line per experiment.

    commit  val_bpb  memory_gb  status  description

The score is the column of the metric's name, or metric_value. A crash has a score of 0 there, which is none.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

from tasks.importing import EarlierTrial, Term

FILE = "results.tsv"
MOST_LINES, MOST_CHARACTERS = 5_000, 500
NO_SCORE = ("crash", "crashed", "failed", "timeout", "error")
VALUE = "metric_value"


def history(path: Path, metric: str) -> tuple[tuple[EarlierTrial, ...], tuple[Term, ...]]:
    """The experiments, the oldest first, and what of them is lost; none where there is no such file."""
    if not path.is_file():
        return (), ()
    trials = []
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = csv.reader((line.replace("\0", "") for line in file), delimiter="\t", quoting=csv.QUOTE_NONE)
        names = [name.strip().lower() for name in next(lines, [])]
        column = next((name for name in (metric.lower(), VALUE) if name in names), "")
        for number, cells in enumerate(lines, 2):
            row = dict(zip(names, map(str.strip, cells), strict=False))
            if column in row:
                status = row.get("status", "").lower()
                score = None if status in NO_SCORE else _number(row[column])
                said = f"{FILE}, line {number}: {status}: {row.get('description', '')}"[:MOST_CHARACTERS]
                trials.append(EarlierTrial({}, score, said))
    why = (
        "history.jsonl, without parameters: models and agents can read it, searches cannot use it"
        if column
        else f"left out: no column is called {metric} or {VALUE}, so none is known to be the score"
    )
    return tuple(trials[-MOST_LINES:]), (Term(FILE, why),)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
