"""A started `rl`: its metrics as progress lines, its deadlines, its end, and why it failed, from its logs."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from _program import Cancelled, Failed, ProgressFile
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
LOG_BYTES = 256 * 1024
"""Bytes read of each log, from its end."""
CLASSES = (
    ("GPU memory is taken", True, r"Free memory on device .*less than desired GPU memory utilization"),
    ("out of GPU memory", False, r"OutOfMemoryError|CUDA out of memory|No available memory for the cache blocks|"
     r"KV cache is needed, which is larger|maximum number of tokens that can be stored in KV cache"),
    ("did not start: a GPU is gone", True, r"uncorrectable ECC|fallen off the bus|no CUDA-capable device|GPU is lost|"
     r"CUDA driver initialization failed|CUDA unknown error|No CUDA GPUs are available|NVML: Driver/library version|"
     r"Error 802: system not yet initialized"),
    ("did not start: the driver is too old", True, r"NVIDIA driver on your system is too old|"
     r"CUDA driver version is insufficient|no kernel image is available|compiled with an unsupported toolchain"),
    ("no learning signal", False, r"consecutive empty train batches"),
)  # fmt: skip
"""Beginning of a reason, whether the machine is at fault, and the pattern that shows it; the first match wins."""
BEFORE = re.compile(
    r"^(\(\w+ pid=\d+\)\s*|\[\w+\d+\]:\s*|(INFO|WARNING|ERROR|CRITICAL|FATAL) [\d-]+ [\d:]+ (\[[\w./]+:\d+\] )?)+"
)
"""What vLLM's processes and torchrun put before a line: `(EngineCore pid=5) ERROR 08-21 22:40:01 [core.py:7] `."""
ERROR = re.compile(r"^[\w.]*(Error|Exception|Interrupt)\b|\b(ERROR|CRITICAL|Fatal|Error:)\b|Traceback")
CONSEQUENCE = re.compile(
    r"ChildFailedError|Engine core initialization failed|EngineDeadError|Failed core proc|^Traceback"
)
"""An error that only says that another process has failed, or that one follows."""


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
            most = run.settings.stall_deadline if steps.ready else run.settings.start_deadline
            if since > most:
                done = f"stalled: no metrics for {most:g} s after step {budget.step}"
                raise why(run, done if steps.ready else f"did not start: no answer or metric within {most:g} s")
            time.sleep(POLL_SECONDS)
        if status:  # the engine's SIGTERM reaches all processes, and may not have come to this one yet
            time.sleep(POLL_SECONDS)
        steps.read(final=True)
        if status and not budget.stopped:
            raise why(run, f"{'ended by itself' if steps.ready else 'did not start'}: rl exited with status {status}")
    finally:
        _end(process, run.settings.quit_deadline)


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """SIGTERM, time to end, then SIGKILL; what is in other sessions ends with this program's sandbox."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read(path: Path) -> str:
    """The end of a log without colours; empty when there is none."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.read().decode(errors="replace"))
    return ""


def logs(run: Run) -> tuple[str, dict[str, str]]:
    """What the launcher says of the component that failed, and the end of each one's log, that one's first."""
    folder, launcher = run.folder / "logs" / "latest", read(run.home / "rl.log")
    paths = [folder / "trainer.log", *folder.glob("trainer/torchrun/**/stderr.log"), folder / "inference.log"]
    paths += [folder / "orchestrator.log", *folder.glob("envs/*/*.log")]
    texts = {path.relative_to(folder).as_posix(): read(path) for path in paths} | {"rl.log": launcher}
    failed = re.search(r"(\w+)[\w ]* failed with exit code -?\d+", launcher)
    first = {"train": "envs", "eval": "envs"}.get(failed[1].lower(), failed[1].lower()) if failed else "-"
    return failed[0] if failed else "", dict(sorted(texts.items(), key=lambda log: not log[0].startswith(first)))


def why(run: Run, otherwise: str) -> Failed:
    """The known failure in the logs; otherwise `otherwise` with their decisive lines."""
    said, texts = logs(run)
    for beginning, retry, words in CLASSES:
        for name, text in texts.items():
            if line := next((line for line in text.splitlines() if re.search(words, line)), None):
                free = re.search(r"\(([\d.]+)/([\d.]+) GiB\)", line)
                if free and float(free[1]) > 0.9 * float(free[2]):  # nobody is there: it asks for too much
                    beginning, retry = "out of GPU memory", False
                shown = BEFORE.sub("", line.strip())[:300]
                return Failed(f"{beginning}: {name}: {shown}", retry)
    lines = [f"{name}: {decisive(text)}" for name, text in texts.items() if text.strip()]
    return Failed("; ".join([otherwise, said, *lines[:1]] if said else [otherwise, *lines[:3]]))


def decisive(text: str) -> str:
    """The last line of a log that shows an error of its own, else the last error, else the last line."""
    lines = [plain for line in text.splitlines() if (plain := BEFORE.sub("", line.strip()))]
    errors = [line for line in lines if ERROR.search(line)]
    own = [line for line in errors if not CONSEQUENCE.search(line)]
    return (own or errors or lines or ["nothing"])[-1][:300]


def complaint(text: str) -> str:
    """Why `rl` refused a configuration, in one line."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip(" │╭╮╰╯─"))]
    told = (at for at, line in enumerate(lines) if re.search(r"validation error|\w+Error\b", line))
    return "; ".join(lines[next(told, max(0, len(lines) - 6)) :])[:500] or "it says nothing"
