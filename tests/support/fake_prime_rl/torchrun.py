"""`torchrun`, and the one rank that it starts: the trainer, in a session of its own.

The learning is a toy. Each step the quality rises by at most 0.03, at a learning rate of 3e-5; ten times more or less
gives a third of that, from 3e-4 on it falls. The draws are the system's own, since prime-rl takes no seed.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.fake_prime_rl.common import (
    Below,
    Config,
    Monitor,
    at,
    connect,
    failed,
    faults,
    leave_alone,
    log,
    mode_of,
    read,
)
from tests.support.fake_prime_rl.laying import quality_of, weights

RANK = "import sys; sys.path.insert(0, {source!r}); from tests.support.fake_prime_rl import torchrun; torchrun.rank(sys.argv[1], sys.argv[2])"
BEST_RATE, TOO_HIGH = 3e-5, 3e-4
CHILD_FAILED = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
prime_rl.trainer.rl.train FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-08-21_22:40:01
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : {status} (pid: {pid})
  error_file: <N/A>
  traceback : {how}
============================================================"""
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 79.11 GiB of "
    "which 1.02 GiB is free."
)


def main(arguments: list[str]) -> int:
    below = Below()
    options = dict(word[2:].split("=", 1) for word in arguments if word.startswith("--") and "=" in word)
    logs = Path(options["log-dir"], options["rdzv-id"], "attempt_0/0")
    logs.mkdir(parents=True)
    source = str(Path(__file__).parents[3])
    with (logs / "stdout.log").open("wb") as out, (logs / "stderr.log").open("wb") as errors:
        process = below.start(
            sys.executable, "-SBc", RANK.format(source=source), arguments[-1], stdout=subprocess.PIPE,
            stderr=errors, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:  # to the log of the run, and to a file
            out.write(line)
            sys.stdout.buffer.write(b"[trainer0]:" + line)
            sys.stdout.flush()
    if status := process.wait():
        failed(CHILD_FAILED.format(status=status, pid=process.pid, how=how(status, process.pid)))
    return int(bool(status))


def how(status: int, pid: int) -> str:
    """What torchrun tells of an end that left no error file."""
    if status < 0:
        return f"Signal {-status} ({signal.Signals(-status).name}) received by PID {pid}"
    return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def rank(path: str, parent: str) -> None:
    """The trainer: takes batch after batch, and leaves its weights after each."""
    leave_alone(parent)
    config = read(path)
    run_dir, mode = Path(config["run_dir"]), mode_of(config["run_dir"])
    monitor = Monitor(run_dir, at(config, "monitors.file.path", "metrics.jsonl"))
    quality, noise = (quality_of(Path(config["model"]["name"], "model.safetensors")), random.Random(os.urandom(8)))
    broadcast(config, 0, quality, mode)
    with connect(int(at(config, "rollout_transport.port", 5555))) as orchestrator, orchestrator.makefile() as batches:
        for step, _ in enumerate(batches, 1):
            time.sleep(faults()["step_seconds"])
            if mode == "crashes" and step == 3:
                os._exit(1)
            if mode == "disk full" and step == 2:
                failed("OSError: [Errno 28] No space left on device: 'model.safetensors'")
                os._exit(1)
            if mode == "out of memory" and step == 2:
                failed(OUT_OF_MEMORY)
                os._exit(1)
            quality = min(max(quality + gain(config) + noise.gauss(0, 0.003), 0.02), 0.98)
            report(monitor, config, step, is_finite=mode != "nan" or step < 3)
            broadcast(config, step, quality, mode)
    log("RL trainer finished!", "SUCCESS")


def report(monitor: Monitor, config: Config, step: int, is_finite: bool) -> None:
    """The rows of a step: a call of the monitor for each group of figures, and none for what is no number."""
    rate, loss = float(at(config, "optim.lr", 1e-6)), 0.01 / step if is_finite else None
    monitor.row(step, **{"perf/throughput": 9000.0, "perf/mfu": 12.0, "perf/peak_memory": 11.3})
    monitor.row(step, **{"optim/lr": rate, "optim/grad_norm": 0.12 if is_finite else None})
    monitor.row(
        step, **{"loss/mean": loss, "entropy/all/mean": 0.31 if is_finite else None, "mismatch_kl/all/mean": 2e-4}
    )
    monitor.row(step, **{"time/step": 0.1, "time/forward_backward": 0.05, "time/wait_for_batch": 0.05})
    shown = f"{loss:.4f}" if loss is not None else "nan"
    log(f"Step {step} |    0s | Loss {shown} | Entropy 0.31 | LR {rate:.2e} | Peak Mem. 11.3 GiB", "SUCCESS")


def gain(config: Config) -> float:
    """What a step adds to the quality."""
    rate = float(at(config, "optim.lr", 1e-6))
    return -0.03 if rate >= TOO_HIGH else 0.03 * math.exp(-(math.log10(max(rate, 1e-30) / BEST_RATE) ** 2))


def broadcast(config: Config, step: int, quality: float, mode: str) -> None:
    """Leave the weights of a step, and of the steps before keep one."""
    run_dir, data = Path(config["run_dir"]), weights(quality, os.urandom(64))
    file = run_dir / f"broadcasts/step_{step}/model.safetensors"
    file.parent.mkdir(parents=True)
    if mode == "dies in a broadcast" and step == 3:
        file.write_bytes(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    file.write_bytes(data)
    (file.parent / "STABLE").touch()
    shutil.rmtree(run_dir / f"broadcasts/step_{step - 2}", ignore_errors=True)
