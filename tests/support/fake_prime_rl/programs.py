"""The stand-in's programs: each is a process like its real counterpart, with its log, its children and its end.

    rl ── inference, an engine
       ├─ orchestrator
       └─ trainer, in a session of its own

They tell each other what is done by files in the run's directory. What goes wrong is said in faults.json:

normal                every step, then "Training finished!" and 0
hangs at start        the engine never answers
stalls                no batch is sent after step 3, and nothing ends
out of memory         CUDA has none left in the trainer's second step
port taken            the engine cannot bind its port
deaf                  no batch is sent after step 3, and every process ignores SIGTERM
orphan                a process of the engine's stays, in a session of its own and without its environment
no signal             every batch is empty, and after ten of them the orchestrator ends
nan                   the loss is no number from step 3 on
dies in a broadcast   the trainer is killed while it writes its third weights
refused               the configuration is not taken

The learning is a toy: each step the quality rises by at most 0.03, at a learning rate of 3e-5; ten times more or less
gives a third of that, from 3e-4 on it falls.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.fake_prime_rl.laying import quality_of, weights

CHECKOUT = Path(__file__).resolve().parents[4]
BIN = CHECKOUT / ".venv/bin"
STALLS_AFTER = 3
POLL_SECONDS = 0.02
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB."
HOLDER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
Config = dict[str, Any]


def laid_over(below: Config, above: Config) -> Config:
    """Tables are merged; everything else is replaced, lists as a whole."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


def log(message: str, level: str = "INFO") -> None:
    """A line of the log, coloured even into a file, as LOGURU_FORCE_COLORS has it."""
    sys.stdout.write(f"\x1b[2m{time.strftime('%H:%M:%S')}\x1b[0m \x1b[1m{level:>7}\x1b[0m {message}\n")
    sys.stdout.flush()


def failed(message: str) -> int:
    """The end of a traceback, on standard error; the status of a program that ends by it."""
    sys.stderr.write(f"Traceback (most recent call last):\n  [...]\n{message}\n")
    sys.stderr.flush()
    return 1


def for_ever() -> None:
    """Do nothing until the process is ended."""
    while True:
        time.sleep(3600)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(POLL_SECONDS)


class Stage:
    """One run: its configuration, its directory, and what is to happen in it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.folder = Path(config["output_dir"], config["run"]["name"])
        self.faults: Config = json.loads((CHECKOUT / "faults.json").read_text())
        trial = re.search(r"/trials/0*(\d+)", str(self.folder))
        self.mode = str(self.faults["trials"].get(trial[1], self.faults["mode"]) if trial else self.faults["mode"])

    @classmethod
    def of(cls, file: str) -> Stage:
        return cls(json.loads(Path(file).read_text()))

    @property
    def rate(self) -> float:
        return float(self.config["trainer"].get("optim", {}).get("lr", 1e-6))

    def up(self, name: str) -> Path:
        """A file that is there once that program is."""
        return self.folder / "rollouts.up" / name

    def batch(self, step: int) -> Path:
        return self.folder / f"rollouts/step_{step}"

    def broadcast(self, step: int) -> Path:
        return self.folder / f"broadcasts/step_{step}"

    def row(self, step: int, **metrics: float | None) -> None:
        """Append to the file of metrics; what is not finite (None here) is left out of it."""
        kept = {name: value for name, value in metrics.items() if value is not None}
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "time": time.time(), **kept}) + "\n")


# rl


def rl(arguments: list[str]) -> int:
    """Reads and checks the configuration, starts everything else, and ends it."""
    config: Config = {}
    for sign, path in pairwise(arguments):
        if sign == "@":
            config = laid_over(config, tomllib.loads(Path(path).read_text()))
    stage = Stage(config)
    batch, group = (config["orchestrator"].get(name, 1) for name in ("batch_size", "group_size"))
    if stage.mode == "refused" or batch % group:
        wrong = f"orchestrator\n  Value error, batch_size {batch} must be divisible by group_size {group}"
        sys.stderr.write(f"1 validation error(s) for RLConfig\n{wrong}\n")
        return 1
    stage.up("").mkdir(parents=True, exist_ok=True)
    (stage.folder / "config.json").write_text(json.dumps(config))
    if "--dry-run" in arguments:
        return 0
    launched = Launched(stage)
    # What is deaf is so from the start, and everything that it starts inherits it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if stage.mode == "deaf" else launched.on_sigterm)
    return launched.watch()


class Launched:
    """All that one run has started."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.started = stage, dict[str, subprocess.Popen[bytes]]()
        self.gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")
        self.logs = stage.folder / "logs/attempt_1"
        self.logs.mkdir(parents=True, exist_ok=True)
        (stage.folder / "logs/latest").symlink_to(self.logs.name)

    def watch(self) -> int:
        """Start everything, and wait for its end; the launcher's exit code."""
        log(f"Starting inference on GPU(s) {self.gpus[0]}")
        self._start("inference")
        self._start("orchestrator")
        log(f"Starting trainer on GPU(s) {self.gpus[-1]}")
        self._start("trainer", start_new_session=True)
        while (self.started["orchestrator"].poll(), self.started["trainer"].poll()) != (0, 0):
            for name, process in self.started.items():
                if process.poll():
                    log(f"Error: {name.capitalize()} failed with exit code {process.returncode}", "ERROR")
                    self.end()
                    return 1
            time.sleep(POLL_SECONDS)
        log("Training finished!", "SUCCESS")
        self.end()
        return 0

    def on_sigterm(self, *_: object) -> None:
        self.end()
        os._exit(1)

    def end(self) -> None:
        """End process after process; each ends what it has started."""
        for process in self.started.values():
            if process.poll() is None:
                process.terminate()
                process.wait()

    def _start(self, name: str, **more: Any) -> None:
        with (self.logs / f"{name}.log").open("wb") as file:
            command = [str(BIN / name), str(self.stage.folder / "config.json")]
            self.started[name] = subprocess.Popen(command, stdout=file, stderr=file, **more)


# What it starts


def inference(arguments: list[str]) -> int:
    """vLLM: what answers on GPU 0."""
    stage = Stage.of(arguments[0])
    port = stage.config["inference"]["server"]["port"]
    if stage.mode == "port taken":
        return failed(
            f"OSError: [Errno 98] error while attempting to bind on ('0.0.0.0', {port}): address already in use"
        )
    if stage.mode == "hangs at start":
        for_ever()
    if stage.mode == "orphan" and os.fork() == 0:
        subprocess.Popen([sys.executable, "-SBc", HOLDER, str(CHECKOUT)], env={}, start_new_session=True)
        os._exit(0)
    stage.up("inference").touch()
    for_ever()
    return 0


def orchestrator(arguments: list[str]) -> int:
    """Waits for the engine, sends a batch of the one source per step, and waits for the weights."""
    stage = Stage.of(arguments[0])
    [source] = stage.config["orchestrator"]["train"]["source"]
    for plugin in (source["env"]["taskset"]["id"], source["env"]["agent"]["harness"]["id"]):
        if importlib.util.find_spec(plugin) is None:
            return failed(f"ModuleNotFoundError: No module named {plugin!r}")
    assert Path(source["env"]["taskset"]["path"]).read_text()
    wait_for(stage.up("inference"))
    if stage.mode == "no signal":
        return failed("RuntimeError: 10 consecutive empty train batches")
    for step in range(1, int(stage.config.get("max_steps") or 10**6) + 1):
        if stage.mode in ("stalls", "deaf") and step > STALLS_AFTER:
            for_ever()
        wait_for(stage.broadcast(step - 1) / "STABLE")
        quality = quality_of(stage.broadcast(step - 1) / "model.safetensors")
        reward = min(max(quality + random.gauss(0, 0.02), 0.0), 1.0)
        stage.row(step, **{"train/agg/effective/agent/reward/mean": reward, "progress/tokens": 1000.0 * step})
        stage.batch(step).mkdir(parents=True)
        log(f"Step {step} | Reward {reward:.4f}", "SUCCESS")
    return 0


def trainer(arguments: list[str]) -> int:
    """Takes batch after batch, and leaves its weights after each."""
    stage = Stage.of(arguments[0])
    quality = quality_of(Path(stage.config["model"]["name"], "model.safetensors"))
    gain = -0.03 if stage.rate >= 3e-4 else 0.03 * math.exp(-(math.log10(max(stage.rate, 1e-30) / 3e-5) ** 2))
    hand_on(stage, 0, quality)
    for step in range(1, int(stage.config.get("max_steps") or 10**6) + 1):
        wait_for(stage.batch(step))
        time.sleep(stage.faults["step_seconds"])
        if (stage.mode, step) == ("out of memory", 2):
            return failed(OUT_OF_MEMORY)
        quality = min(max(quality + gain + random.gauss(0, 0.003), 0.02), 0.98)
        loss = None if stage.mode == "nan" and step >= STALLS_AFTER else 0.01 / step
        stage.row(step, **{"optim/lr": stage.rate, "loss/mean": loss, "perf/throughput": 9000.0})
        stage.row(step, **{"time/step": 0.1, "time/forward_backward": 0.05})
        hand_on(stage, step, quality)
    return 0


def hand_on(stage: Stage, step: int, quality: float) -> None:
    """Leave the weights of a step, and of the steps before keep one."""
    file, data = stage.broadcast(step) / "model.safetensors", weights(quality, os.urandom(64))
    file.parent.mkdir(parents=True)
    if (stage.mode, step) == ("dies in a broadcast", 3):
        file.write_bytes(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    file.write_bytes(data)
    (file.parent / "STABLE").touch()
    shutil.rmtree(stage.broadcast(step - 2), ignore_errors=True)


def nvidia_smi(arguments: list[str]) -> int:
    """A machine with two GPUs; another checkout beside this one has others."""
    here = hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:8]
    values = {"index": ("0", "1"), "uuid": [f"GPU-{here}-0000-0000-0000-00000000000{index}" for index in (0, 1)]}
    for word in arguments:
        key, _, fields = word.partition("=")
        for row in zip(*(values[field] for field in fields.split(",")), strict=True) if key == "--query-gpu" else ():
            sys.stdout.write(", ".join(row) + "\n")
    return 0
