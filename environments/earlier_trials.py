"""Earlier trials: what another tool tried in the problem and measured there, for proposers to learn from.

`history.jsonl` beside environment.toml holds a line for each, the oldest first; `nightshift env import` writes it:

    {"params": {"lr": 0.001, "batch": 64}, "score": 0.93, "note": "results.tsv, line 3: keep: larger batch"}

They have no runs and no judge of ours has seen them, so they take no part in verdicts, noise or certificates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, StrictFloat, StrictStr, TypeAdapter, ValidationError

from environments import plugins
from environments.plugins import Refused
from environments.space import Value, is_finite

FILE = "history.jsonl"
MOST = 5_000
"""Lines of a file; each campaign keeps a copy."""


def _is_plain(value: Any) -> Value:
    if not isinstance(value, Value) or not is_finite(value):
        raise ValueError("must be a finite number, a text or a boolean")
    return value


@dataclass(frozen=True)
class EarlierTrial:
    """A trial that the original tool ran, for a proposer to learn from."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    params: Mapping[str, Annotated[Any, AfterValidator(_is_plain)]]
    """Those that are known; of an edit of the program none."""
    score: StrictFloat | None
    """None where it failed."""
    note: StrictStr = ""
    """Where it comes from, and what that tool said of it."""


TRIAL = TypeAdapter(EarlierTrial)


def text(trials: Iterable[EarlierTrial]) -> str:
    """The content of the file."""
    return "".join(f"{json.dumps(asdict(trial))}\n" for trial in trials)


def read(folder: Path) -> tuple[EarlierTrial, ...]:
    """The earlier trials of an environment's folder; none without the file. Refused if a line is none."""
    path = folder / FILE
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n") if path.is_file() else []
    except UnicodeDecodeError as wrong:
        raise Refused(f"{path}: not UTF-8 ({wrong.reason}): mend or rename it") from wrong
    if len(lines) > MOST:
        raise Refused(f"{path}: {len(lines)} lines, at most {MOST} are taken: keep the newest")
    return tuple(_trial(f"{path}: line {number}", line) for number, line in enumerate(lines, 1) if line.strip())


def _trial(where: str, line: str) -> EarlierTrial:
    try:
        return TRIAL.validate_python(json.loads(line))
    except ValidationError as wrong:
        raise plugins.explain(wrong, where) from wrong
    except (ValueError, RecursionError) as wrong:
        raise Refused(
            f'{where}: not JSON: a line is {{"params": {{...}}, "score": 0.5}}: mend or rename {FILE}'
        ) from wrong
