"""Reports of an imported program, in the protocol of epappas/autoresearch-rl: `emit_progress`, whose package this is.

The other stand-ins report by it too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()
CANCEL_EXIT_CODE = 42


def _write(line: Mapping[str, Any]) -> None:
    if progress := os.environ.get("AR_PROGRESS_FILE"):
        with Path(progress).open("a") as file:
            file.write(json.dumps(line) + "\n")


def emit_ready() -> None:
    """Say that training begins now: what came before were imports."""
    _write({"ready": True})


def emit_progress(
    *, step: int, step_target: int, metrics: Mapping[str, float] | None = None, iter: int | None = None,
    exit_on_cancel: bool = True,
) -> bool:  # fmt: skip
    """Report progress; whether to go on. Does nothing where AR_PROGRESS_FILE is not set."""
    elapsed = time.monotonic() - BEGAN
    _write({"step": step, "step_target": step_target, "elapsed_s": elapsed, "metrics": metrics or {}})
    control = os.environ.get("AR_CONTROL_FILE")
    if not control or not Path(control).is_file():
        return True
    if exit_on_cancel:
        sys.exit(CANCEL_EXIT_CODE)
    return False


def numbers(data: Mapping[str, Any], above: str = "") -> dict[str, float]:
    """The numbers of what is logged, also of arrays with one element; nested names are joined by dots."""
    found: dict[str, float] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            found |= numbers(value, f"{above}{name}.")
        elif not isinstance(value, (str, bytes)):
            with suppress(TypeError, ValueError, RuntimeError):  # a picture, a list, or an array of several numbers
                found[f"{above}{name}"] = float(value.item() if hasattr(value, "item") else value)
    return found
