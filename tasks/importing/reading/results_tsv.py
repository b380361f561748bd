"""results.tsv of the repositories in which an agent edits files and commits: a line per experiment.

    commit  eval_score  memory_gb  status  description

The score is the column of the metric's name, or metric_value. Where nobody knows the metric's name, it is the only
column that is none of the others. A crash has a score of 0 there, which is none.
"""

from __future__ import annotations

import csv
import math
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from environments.space import Value
from tasks.editing.patches import git_environment
from tasks.importing import EarlierTrial, Term

FILE = "results.tsv"
COMMIT = re.compile(r"[0-9a-f]{7,40}")
MOST_LINES, MOST_CHARACTERS = 5_000, 500
BLOB_BYTES = 2**20
NO_SCORE = ("crash", "crashed", "failed", "timeout", "error")
NOT_SCORES = frozenset({"commit", "status", "description", "memory_gb"})
VALUE = "metric_value"
Read = Callable[[str], Mapping[str, Value]]
"""The parameters of a commit; empty where they are not known."""


def history(path: Path, metric: str) -> tuple[tuple[EarlierTrial, ...], tuple[Term, ...]]:
    """The experiments of a results.tsv, and what of them is lost."""
    if not path.is_file():
        return (), ()
    found = trials(path, metric=metric)
    why = (
        "history.jsonl, without parameters: models and agents can read it, searches cannot use it"
        if found
        else f"left out: no column is called {metric} or {VALUE}, so none is known to be the score"
    )
    return found, (Term(FILE, why),)


def trials(path: Path, params_of: Read = lambda _: {}, metric: str = "") -> tuple[EarlierTrial, ...]:
    """The experiments of a results.tsv, the oldest first; none where there is no such file, or no score in it."""
    return tuple(_trials(path, params_of, metric))[-MOST_LINES:] if path.is_file() else ()


def _trials(path: Path, params_of: Read, metric: str) -> Iterator[EarlierTrial]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = csv.reader((line.replace("\0", "") for line in file), delimiter="\t", quoting=csv.QUOTE_NONE)
        names = [name.strip().lower() for name in next(lines, [])]
        called = [name for name in (metric.lower(), VALUE) if name in names]
        others = [name for name in names if name not in NOT_SCORES] if not metric else []
        column = names.index(called[0]) if called else names.index(others[0]) if len(others) == 1 else None
        if column is None or not {"status", "description"} <= {*names}:
            return
        for number, cells in enumerate(lines, 2):
            row = dict(zip(names, cells, strict=False))
            if not "".join(cells).strip() or len(cells) <= column:
                continue
            status = row.get("status", "").strip().lower()
            score = None if status in NO_SCORE else _number(cells[column])
            said = f"{FILE}, line {number}: {status}: {row.get('description', '').strip()}"[:MOST_CHARACTERS]
            yield EarlierTrial(dict(params_of(row.get("commit", "").strip())), score, said)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def at_commit(folder: Path, commit: str, name: str) -> str | None:
    """A file of a repository as it was at a commit; None where it is not known. Nothing of the repository is run."""
    if not COMMIT.fullmatch(commit):
        return None
    # cat-file neither filters nor converts. A commit that is not there would be fetched, by a program that the
    # repository's settings name.
    alone = git_environment(GIT_NO_LAZY_FETCH="1", GIT_ALLOW_PROTOCOL="none")
    command = ["git", "--no-optional-locks", "-c", "safe.directory=*", "cat-file", "blob", f"{commit}:./{name}"]
    try:
        done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, check=False, timeout=30)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode or len(done.stdout) > BLOB_BYTES:
        return None
    return done.stdout.decode("utf-8", "replace")
