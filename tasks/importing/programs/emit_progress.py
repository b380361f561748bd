"""`emit_progress` for imported programs that call it, where the package autoresearch-rl is not installed."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

BEGAN = time.monotonic()
CANCEL_EXIT_CODE = 42


def emit_progress(
    *,
    step: int,
    step_target: int,
    metrics: Mapping[str, float] | None = None,
    iter: int | None = None,
    exit_on_cancel: bool = True,
) -> bool:
    """Report progress; whether to go on. Does nothing where AR_PROGRESS_FILE is not set."""
    progress, control = os.environ.get("AR_PROGRESS_FILE"), os.environ.get("AR_CONTROL_FILE")
    if not progress:
        return True
    line = {"step": step, "step_target": step_target, "elapsed_s": time.monotonic() - BEGAN, "metrics": metrics or {}}
    with Path(progress).open("a") as file:
        file.write(json.dumps(line) + "\n")
    if not control or not Path(control).is_file():
        return True
    if exit_on_cancel:
        sys.exit(CANCEL_EXIT_CODE)
    return False
