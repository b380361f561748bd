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
from typing import Any, TextIO

from prime_rl_parts import Cancelled, Failed
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

    def __init__(self, run: Run, progress: TextIO) -> None:
        self.run, self.progress = run, progress
        self.began = self.last = time.monotonic()
        """When work began, which `elapsed` counts from; and when the latest row came."""
        self.step, self.ready = 0, False
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
        if not self.ready and self.has_begun():
            self.ready, self.began, self.last = True, time.monotonic(), time.monotonic()
            self.progress.write('{"ready": true}\n')
        for line in complete.splitlines():
            with suppress(ValueError, KeyError, TypeError):  # two processes write to it
                self._take(json.loads(line))
        if lost := [step for step in self._steps - self._losses if final or step < self.step]:
            raise Failed(f"diverged: the loss of step {min(lost)} is no finite number")

    def has_begun(self) -> bool:
        """Whether there is a first sign of work: an answer or a row."""
        return any(self.run.folder.glob("rollouts/*")) or (self._file.is_file() and self._file.stat().st_size > 0)

    def _take(self, row: dict[str, Any]) -> None:
        step, self.last = int(row["step"]), time.monotonic()
        values = {key: value for key, value in row.items() if key in self._names and math.isfinite(value)}
        self._latest |= {self._names[key]: value for key, value in values.items()}
        if "loss/mean" in values:
            self._losses.add(step)
        is_done = "time/forward_backward" in row  # the trainer's own: this step is done
        if is_done:
            self.step = max(self.step, step)
            self._steps.add(step)
        if is_done or any(key in values for key in CURVE):
            line: dict[str, Any] = {"elapsed": round(self.last - self.began, 3), "step": self.step}
            line |= {"step_target": self.run.config["budget_steps"] or None, "metrics": self._latest}
            self.progress.write(json.dumps(line) + "\n")


class Watch:
    """One started `rl`, until it has ended."""

    def __init__(self, run: Run, progress: TextIO) -> None:
        self.run, self.process = run, run.start(log="rl.log")
        self.steps = Steps(run, progress)

    def follow(self) -> None:
        """Watch until it ends or is told to."""
        while (status := self.process.poll()) is None and not self.run.told and not self.is_over():
            if Path("cancel").exists():
                raise Cancelled
            self.look()
            time.sleep(POLL_SECONDS)
        if status:  # the engine's SIGTERM reaches all processes, and may not have come to this one yet
            time.sleep(POLL_SECONDS)
        self.steps.read(final=True)
        if status and not self.run.told:
            begun = "ended by itself" if self.steps.has_begun() else "did not start"
            raise why(self.run, f"{begun}: rl exited with status {status}")

    def is_over(self) -> bool:
        """Whether the last step is done, and `rl` has not ended since."""
        steps, wanted = self.steps, self.run.config["budget_steps"]
        return 0 < wanted <= steps.step and time.monotonic() - steps.last > self.run.settings.quit_deadline

    def look(self) -> None:
        """Read what is new, and check the deadlines."""
        settings, steps, now = self.run.settings, self.steps, time.monotonic()
        steps.read()
        if not steps.ready and now - steps.began > settings.start_deadline:
            raise why(self.run, f"did not start: no answer or metric within {settings.start_deadline:g} s")
        if steps.ready and now - steps.last > settings.stall_deadline:
            raise why(self.run, f"stalled: no metrics for {settings.stall_deadline:g} s after step {steps.step}")

    def end(self) -> None:
        """SIGTERM, time to end, then SIGKILL; what is in other sessions ends with this program's sandbox."""
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(self.run.settings.quit_deadline)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
