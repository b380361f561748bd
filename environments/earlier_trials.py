"""Earlier trials: what another tool tried in the problem and measured there, for proposers to learn from.

`history.jsonl` beside environment.toml holds a line for each, the oldest first; `nightshift env import` writes it:

    {"params": {"lr": 0.001, "batch": 64}, "score": 0.93, "note": "results.tsv, line 3: keep: larger batch"}

They have no runs and no judge of ours has seen them, so they take no part in verdicts, noise or certificates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from environments.space import Value, is_finite

FILE = "history.jsonl"
MOST = 5_000
"""Lines of a file; each campaign keeps a copy."""
KEYS = ("params", "score", "note")


@dataclass(frozen=True)
class EarlierTrial:
    """A trial that the original tool ran, for a proposer to learn from."""

    params: Mapping[str, Value]
    """Those that are known; of an edit of the program none."""
    score: float | None
    """None where it failed."""
    note: str = ""
    """Where it comes from, and what that tool said of it."""


def text(trials: Iterable[EarlierTrial]) -> str:
    """The content of the file."""
    return "".join(f"{json.dumps(asdict(trial))}\n" for trial in trials)


def read(folder: Path) -> tuple[EarlierTrial, ...]:
    """The earlier trials of an environment's folder; none without the file. Refused if a line is none."""
    path = folder / FILE
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n") if path.is_file() else []
    except UnicodeDecodeError as wrong:
        raise Refused(f"{path}: not UTF-8 ({wrong.reason}): {REMEDY}") from wrong
    if len(lines) > MOST:
        raise Refused(f"{path}: {len(lines)} lines, at most {MOST} are taken: keep the newest")
    return tuple(_trial(f"{path}: line {number}", line) for number, line in enumerate(lines, 1) if line.strip())


REMEDY = f'it holds the trials of another tool, {{"params": {{...}}, "score": 0.5}} to a line: mend or rename {FILE}'


def _trial(where: str, line: str) -> EarlierTrial:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError) as wrong:
        raise Refused(f"{where}: not JSON: {REMEDY}") from wrong
    if not isinstance(found, dict) or not {"params", "score"} <= found.keys() <= {*KEYS}:
        raise Refused(f"{where}: must have params and score, and may have a note, got {line[:100]}: {REMEDY}")
    params, score, note = (found.get(key, "") for key in KEYS)
    if not isinstance(params, dict) or not all(isinstance(one, Value) and is_finite(one) for one in params.values()):
        raise Refused(f"{where}: params must be finite numbers, texts or booleans by name, got {str(params)[:100]}")
    if score is not None and not _is_number(score):
        raise Refused(f"{where}: score must be a finite number, or null for a failure, got {str(score)[:40]}")
    if not isinstance(note, str):
        raise Refused(f"{where}: note must be a text, got {str(note)[:40]}")
    return EarlierTrial(params, None if score is None else float(score), note)


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # of a whole number that no float holds
        return False
