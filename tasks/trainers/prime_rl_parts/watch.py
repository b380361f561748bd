"""A started `rl`: its metrics as progress lines, its deadlines, and its end."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from _program import Cancelled, Failed, ProgressFile
from prime_rl_parts.reasons import why
from prime_rl_parts.run import Run

POLL_SECONDS = 0.2
CURVES = {
    "loss/mean": "loss",
    "entropy/all/mean": "entropy/mean",
    "mismatch_kl/all/mean": "kl/mean",
    "optim/grad_norm": "gradient/norm",
    "optim/lr": "learning_rate",
    "perf/throughput": "tokens/per_second",
    "perf/peak_memory": "memory/reserved_gib",
    "train/agg/all/agent/has_error/mean": "errors/share",
    "train/agg/effective/agent/is_truncated/mean": "length/truncated",
}
"""Keys of metrics.jsonl, and their names in reports."""
REWARD = "train/agg/effective/agent/reward/mean"
CURVE = ("eval/curve/effective/agent/pass@1", "eval/curve/effective/agent/avg@1")
"""The mean on data/curve.jsonl."""


class Steps:
    """The content of metrics.jsonl so far. Its two writers take turns, with several rows per step."""

    def __init__(self, run: Run, progress: ProgressFile) -> None:
        self.run, self.progress, self.ready = run, progress, False
        self.last = time.monotonic()
        """When the latest row came; before the first, the launch."""
        self._latest: dict[str, float] = {}
        self._file, self._read_bytes = run.folder / "metrics.jsonl", 0
        self._steps: set[int] = set()
        self._losses: set[int] = set()
        # The reward in training is no measure of what is learnt where trials sample differently.
        metric, has_curve = run.settings.metric, (run.data / "curve.jsonl").is_file()
        learnt = {REWARD: "reward/mean", **dict.fromkeys(CURVE, metric)} if has_curve else {REWARD: metric}
        self._names = CURVES | learnt

    def read(self, final: bool = False) -> None:
        """Read new rows. A step without a loss has diverged, since NaN is not written: the next step tells."""
        chunk = b""
        with suppress(FileNotFoundError), self._file.open("rb") as file:
            file.seek(self._read_bytes)
            chunk = file.read()
        complete = chunk[: chunk.rfind(b"\n") + 1]
        self._read_bytes += len(complete)
        if not self.ready and (complete or any(self.run.folder.glob("rollouts/*"))):  # a row, or an answer
            self.ready, self.last = True, time.monotonic()
            self.progress.ready()
        for line in complete.splitlines():
            with suppress(ValueError, KeyError, TypeError):  # two processes write to it
                self._take(json.loads(line))
        if lost := [step for step in self._steps - self._losses if final or step < self.progress.budget.step]:
            raise Failed(f"diverged: the loss of step {min(lost)} is no finite number")

    def _take(self, row: dict[str, Any]) -> None:
        step, self.last = int(row["step"]), time.monotonic()
        values = {key: value for key, value in row.items() if key in self._names and math.isfinite(value)}
        self._latest |= {self._names[key]: value for key, value in values.items()}
        if "loss/mean" in values:
            self._losses.add(step)
        is_done = "time/forward_backward" in row  # the trainer's own: this step is done
        if is_done:
            self.progress.budget.step = max(self.progress.budget.step, step)
            self._steps.add(step)
        if is_done or any(key in values for key in CURVE):
            self.progress.report(self._latest)


def follow(run: Run, progress: ProgressFile) -> None:
    """Launch `rl` and watch it until it ends, is told to, or breaks a deadline.

    Raises Failed or Cancelled; whatever happens, its processes have ended.
    """
    process, steps, budget = run.start(log="rl.log"), Steps(run, progress), progress.budget
    try:
        while (status := process.poll()) is None and not budget.stopped:
            if Path("cancel").exists():
                raise Cancelled
            steps.read()
            since = time.monotonic() - steps.last
            if 0 < budget.steps <= budget.step and since > run.settings.quit_deadline:
                break  # the last step is done, and it has not ended since
            _check_deadlines(run, steps, since)
            time.sleep(POLL_SECONDS)
        if status:  # the engine's SIGTERM reaches all processes, and may not have come to this one yet
            time.sleep(POLL_SECONDS)
        steps.read(final=True)
        if status and not budget.stopped:
            raise why(run, f"{'ended by itself' if steps.ready else 'did not start'}: rl exited with status {status}")
    finally:
        _end(process, run.settings.quit_deadline)


def _check_deadlines(run: Run, steps: Steps, since: float) -> None:
    start, stall = run.settings.start_deadline, run.settings.stall_deadline
    if not steps.ready and since > start:
        raise why(run, f"did not start: no answer or metric within {start:g} s")
    if steps.ready and since > stall:
        raise why(run, f"stalled: no metrics for {stall:g} s after step {steps.progress.budget.step}")


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """SIGTERM, time to end, then SIGKILL; what is in other sessions ends with this program's sandbox."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
