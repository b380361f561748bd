"""Earlier trials: what another tool tried in the problem and measured there, for proposers to learn from.

`history.jsonl` beside environment.toml holds a line for each, the oldest first; `nightshift env import` writes it:

    {"params": {"lr": 0.001, "batch": 64}, "score": 0.93, "note": "Optuna's trial 3"}

No judge of ours has seen them, so they take no part in verdicts, noise or certificates.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from environments.plugins import Refused, explain
from environments.space import Value

FILE = "history.jsonl"
MOST = 5_000
"""Lines of a file; each campaign keeps a copy."""


class EarlierTrial(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A trial that the original tool ran, for a proposer to learn from."""

    params: Mapping[str, Value]
    """Those that are known; of an edit of the program none."""
    score: Annotated[float | None, Field(strict=True)]
    """None where it failed."""
    note: str = ""
    """Where it comes from, and what that tool said of it."""


def read(folder: Path) -> tuple[EarlierTrial, ...]:
    """The earlier trials of an environment's folder; none without the file. Refused if a line is none."""
    path, trials = folder / FILE, list[EarlierTrial]()
    lines = path.read_bytes().rstrip(b"\n").split(b"\n") if path.is_file() else []
    if len(lines) > MOST:
        raise Refused(f"{path}: {len(lines)} lines, at most {MOST} are taken: keep the newest")
    for number, line in enumerate(lines, 1):
        try:
            trials += [EarlierTrial.model_validate_json(line)] if line.strip() else []
        except ValidationError as wrong:
            raise explain(wrong, f"{path}: line {number}") from wrong
    return tuple(trials)
