"""A running program's reports in out/progress.jsonl: claims, never a score."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments import safe_open
from environments.judges import Misbehaved
from tasks.system.redact import one_line
from tasks.trial import TWENTIETHS, Curve

MOST_STEPS = 2**53
"""Reports of more steps are ignored: a float does not hold such a number exactly."""
PROGRESS_LIMIT = 4 * 2**20
"""Bytes that one look reads, in a second or two; the next one reads on. The whole file counts into `out_gb`."""
REASON_CHARACTERS = 500


@dataclass(frozen=True)
class Failure:
    """A program's own report that it failed: `{"failed": "out of GPU memory: ...", "retry": false}`."""

    reason: str
    """One line, without secrets and control characters."""
    retry: bool = False
    """Whether the program blames the machine, so that a retry may succeed; a claim like the rest."""


class Progress:
    """The reports of a running program, read as they come. The curve grows with the share of the budget that has
    passed: by the engine's seconds (`passed`) or by the steps that the program claims, whichever is further.
    """

    def __init__(self, path: Path, metric: str, budget_steps: int = 0) -> None:
        self._path, self._metric, self._budget_steps = path, metric, budget_steps
        self._offset = self.count = 0
        self.ready = False
        self.steps: int | None = None
        self.reported: float | None = None
        self.failure: Failure | None = None
        """The last report of a failure; a program sends it once, before it ends."""
        self.note = ""
        """The last sentence on its result, without secrets and control characters."""
        self.curve: Curve = ()

    def passed(self, twentieths: int) -> None:
        """Extend the curve to so many twentieths of the budget with the last reported value."""
        self.curve += (self.reported,) * (min(twentieths, TWENTIETHS) - len(self.curve))

    def read(self) -> None:
        """Read new complete lines, as many as a look may. Raises Misbehaved when one is not a report."""
        try:
            with safe_open.open_file(self._path) as file:
                file.seek(self._offset)
                new = file.read(PROGRESS_LIMIT)
        except FileNotFoundError:
            return
        except OSError as fault:
            raise Misbehaved(f"out/progress.jsonl cannot be read ({fault.strerror}): it must be a file") from fault
        complete = new[: new.rfind(b"\n") + 1]
        if len(new) == PROGRESS_LIMIT and not complete:
            raise Misbehaved(f"out/progress.jsonl has a line of more than {PROGRESS_LIMIT // 2**20} MiB")
        self._offset += len(complete)
        for line in complete.splitlines():
            self.count += 1
            if (report := parse_report(line)) is None:
                shown = line[:80].decode(errors="replace")
                raise Misbehaved(f"out/progress.jsonl line {self.count} is not a report: {shown!r}")
            self._take(report)

    def read_all(self) -> None:
        """Read all that is there by now: `read` takes a part at a time."""
        known = -1
        while known < self.count:
            known = self.count
            self.read()

    def _take(self, report: dict[str, object]) -> None:
        if isinstance(why := report.get("failed"), str):
            reason = one_line(why, REASON_CHARACTERS) or "failed, and gave no reason"
            self.failure = Failure(reason, report.get("retry") is True)
            return
        if isinstance(note := report.get("note"), str):
            self.note = one_line(note, REASON_CHARACTERS)
            return
        self.ready = True  # a program that reports is ready, whether it said so or not
        step = report.get("step")
        if type(step) is int and 0 <= step < MOST_STEPS:
            self.steps = step
        self.reported = numbers(report.get("metrics")).get(self._metric, self.reported)
        if self._budget_steps and self.steps is not None:
            self.passed(self.steps * TWENTIETHS // self._budget_steps)


def parse_report(line: bytes) -> dict[str, object] | None:
    """One report, or None: an object with `ready`, `failed`, `note`, or a numeric `elapsed` or `step`."""
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict):
        return None
    is_numeric = {type(report.get("elapsed")), type(report.get("step"))} & {int, float}
    speaks = any(isinstance(report.get(key), str) for key in ("failed", "note"))
    return report if is_numeric or speaks or report.get("ready") is True else None


def numbers(found: Any) -> dict[str, float]:
    """What of a report, or of its metrics, is a finite number, by name; nothing of what is no object."""
    pairs = found.items() if isinstance(found, dict) else ()
    # nan compares as false; nothing larger can be drawn
    return {name: float(one) for name, one in pairs if type(one) in (int, float) and abs(one) <= 1e100}
