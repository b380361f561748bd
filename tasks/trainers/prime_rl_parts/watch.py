"""A started `rl`: its metrics as progress lines, its deadlines, and its end."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from prime_rl_parts import Cancelled, Failed
from prime_rl_parts.ends import sweep
from prime_rl_parts.reasons import why
from prime_rl_parts.run import Run

POLL_SECONDS = 0.2
CONFIRM_SECONDS = 3.0
"""Seconds by which a step's loss may come after its other rows."""
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


class Lines:
    """The complete lines of a growing file, each once."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def new(self) -> list[str]:
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self.offset)
            chunk = file.read()
            complete = chunk[: chunk.rfind(b"\n") + 1]
            self.offset += len(complete)
            return complete.decode(errors="replace").splitlines()
        return []


@dataclass
class Steps:
    """The content of metrics.jsonl so far. Its two writers take turns, with several rows per step."""

    run: Run
    progress: TextIO
    began: float
    """When work began, which `elapsed` counts from."""
    step: int = 0
    last: float = 0.0
    """When the latest row came."""
    latest: dict[str, float] = field(default_factory=dict)
    _files: dict[Path, Lines] = field(default_factory=dict)
    _losses: set[int] = field(default_factory=set)
    _unconfirmed: dict[int, float] = field(default_factory=dict)

    @property
    def named(self) -> dict[str, str]:
        """The keys of what is learnt. The reward in training is no measure of it where trials sample differently."""
        metric = self.run.settings.metric
        if (self.run.data / "curve.jsonl").is_file():
            return {REWARD: "reward/mean", **dict.fromkeys(CURVE, metric)}
        return {REWARD: metric}

    def read(self, final: bool = False) -> None:
        """Read new rows; a step without a loss has diverged, since NaN is not written."""
        for path in self.files():
            for line in self._files.setdefault(path, Lines(path)).new():
                with suppress(ValueError, KeyError, TypeError):  # two processes write to it
                    self.take(json.loads(line))
        now = time.monotonic()
        for step, seen in list(self._unconfirmed.items()):
            if step in self._losses:
                del self._unconfirmed[step]
            elif final or now - seen > CONFIRM_SECONDS:
                raise Failed(f"diverged: the loss of step {step} is no finite number")

    def files(self) -> list[Path]:
        """The metrics files, whose place depends on the version."""
        found = [self.run.folder / "metrics.jsonl", *self.run.folder.glob("monitors/*/metrics.jsonl")]
        return [path for path in found if path.is_file() and path.stat().st_size]

    def has_begun(self) -> bool:
        """Whether there is a first sign of work: an answer or a row."""
        return any(self.run.folder.glob("rollouts/*")) or bool(self.files())

    def take(self, row: dict[str, Any]) -> None:
        step = int(row["step"])
        self.last = time.monotonic()
        names = CURVES | self.named
        told = {key: value for key, value in row.items() if key in names and math.isfinite(value)}
        self.latest |= {names[key]: value for key, value in told.items()}
        if "loss/mean" in told:
            self._losses.add(step)
        done = "time/forward_backward" in row  # the trainer's own: this step is done
        if done:
            self.step = max(self.step, step)
            self._unconfirmed[step] = time.monotonic()
        if done or any(key in told for key in CURVE):
            line: dict[str, Any] = {"elapsed": round(self.last - self.began, 3), "step": self.step}
            line |= {"step_target": self.run.config["budget_steps"] or None, "metrics": self.latest}
            self.progress.write(json.dumps(line) + "\n")


NOTHING = "no two answers to a question that scored differently: too hard, too easy, or group_size is 1"


class Watch:
    """One started `rl`, until it has ended."""

    def __init__(self, run: Run, progress: TextIO) -> None:
        self.run, self.progress = run, progress
        self.process = run.start(log="rl.log")
        self.started = time.monotonic()
        self.ready = False
        self.steps = Steps(run, progress, self.started)
        self.orchestrator = Lines(run.folder / "logs" / "latest" / "orchestrator.log")
        self.empty = 0

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
        if not self.ready and steps.has_begun():
            self.ready, steps.began, steps.last = True, now, now
            self.progress.write('{"ready": true}\n')
        steps.read()
        if not self.ready and now - self.started > settings.start_deadline:
            raise why(self.run, f"did not start: no answer or metric within {settings.start_deadline:g} s")
        for line in self.orchestrator.new():
            if counted := re.search(r"consecutive empty batches: (\d+)", line):
                self.empty = int(counted[1])
        if self.empty >= settings.empty_batches:
            raise Failed(f"no learning signal: {settings.empty_batches} batches in a row had {NOTHING}")
        if self.ready and now - steps.last > settings.stall_deadline:
            raise why(self.run, f"stalled: no metrics for {settings.stall_deadline:g} s after step {steps.step}")

    def end(self) -> None:
        """SIGTERM, time to end, then SIGKILL for all of its processes."""
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(self.run.settings.quit_deadline)
        with suppress(ProcessLookupError):  # behind Landlock no other process can be looked for
            os.killpg(self.process.pid, signal.SIGKILL)
        sweep(self.run.marker)
        self.process.wait()
