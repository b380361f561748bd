"""A stand-in for a checkout of prime-rl, laid into a folder: programs of ours with the process shape of the real ones.

    checkout = lay(tmp_path / "prime-rl", Faults(trials={3: "out of memory"}))
    subprocess.run([checkout / ".venv/bin/rl", "@", "train.toml", "@", "engine.toml"])

    rl ── inference, an engine
       ├─ orchestrator
       └─ trainer, in a session of its own

Nothing is learnt and no GPU is used: the weights hold a number, `quality`, that rises at each step by at most 0.03, at a
learning rate of 3e-5; ten times more or less gives a third of that, from 3e-4 on it falls. The programs are this file
alone; they tell each other what is done by files in the run's directory, which is that of prime-rl in August 2026.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

MODES = {
    "normal": 'every step, then "Training finished!" and 0',
    "hangs at start": "the engine never answers",
    "stalls": "no batch is sent after step 3, and nothing ends",
    "out of memory": "CUDA has none left in the trainer's second step",
    "GPU taken": "another program holds the memory of the engine's GPU",
    "nan": "the loss is no number from step 3 on",
    "refused": "the configuration is not taken",
}
SCRIPT = """\
#!{python} -SB
import sys
sys.path.insert(0, {source!r})
import fake_prime_rl
sys.exit(fake_prime_rl.{function}(sys.argv[1:]))
"""
STALLS_AFTER, POLL_SECONDS = 3, 0.02
CHECKOUT = Path(__file__).resolve().parents[1]
"""Of a copy of this file that was laid."""
Config = dict[str, Any]


@dataclass(frozen=True)
class Faults:
    """What happens when; stored as faults.json in the checkout, and read anew by each process."""

    mode: str = "normal"
    """What happens where nothing else is said."""
    trials: Mapping[int, str] = field(default_factory=dict)
    """What happens in a trial, by its number, which stands in the output directory (.../trials/0007/...)."""
    step_seconds: float = 0.02


NORMAL = Faults()


def lay(folder: Path, faults: Faults = NORMAL) -> Path:
    """Lay out the checkout; its folder, as an absolute path."""
    folder = folder.absolute()
    source, programs = folder / "src", folder / ".venv/bin"
    source.mkdir(parents=True, exist_ok=True)
    programs.mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, source / "fake_prime_rl.py")
    for name in ("rl", "inference", "orchestrator", "trainer"):
        text = SCRIPT.format(python=sys.executable, source=str(source), function=name)
        (programs / name).write_text(text)
    (programs / "python").write_text("#!/bin/sh\necho 2.11.0 with CUDA 12.8\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    goes_wrong(folder, faults)
    return folder


def goes_wrong(checkout: Path, faults: Faults) -> None:
    """From now on this happens there."""
    assert MODES.keys() >= {faults.mode, *faults.trials.values()}
    new = checkout / ".faults.json"
    new.write_text(json.dumps(asdict(faults)))
    new.replace(checkout / "faults.json")


def base_model(folder: Path, quality: float = 0.4) -> Path:
    """A model directory of the form that training starts from, with weights that only the stand-in can read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "stand_in", "hidden_size": 4}))
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.1, "top_k": 20, "top_p": 0.8}))
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (folder / "model.safetensors").write_bytes(weights(quality, bytes(64)))
    return folder


def weights(quality: float, noise: bytes) -> bytes:
    """Two tensors of 32-bit numbers in the safetensors format: the first value of the norm is the quality."""
    norm = struct.pack("<4f", quality, 1.0, 1.0, 1.0)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, data in (("model.embed_tokens.weight", noise), ("model.norm.weight", norm)):
        header[name] = {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [end, end + len(data)]}
        end += len(data)
    written = json.dumps(header).encode()
    written += b" " * (-len(written) % 8)
    return struct.pack("<Q", len(written)) + written + noise + norm


def quality_of(file: Path) -> float:
    """What `weights` was given."""
    data = file.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    (quality,) = struct.unpack_from("<f", data, 8 + length + header["model.norm.weight"]["data_offsets"][0])
    return float(quality)


# The programs


class Stage:
    """One run: its configuration, its directory, and what is to happen in it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.folder = Path(config["output_dir"], config["run"]["name"])
        self.faults: Config = json.loads((CHECKOUT / "faults.json").read_text())
        trial = re.search(r"/trials/0*(\d+)", str(self.folder))
        self.mode = str(self.faults["trials"].get(trial[1], self.faults["mode"]) if trial else self.faults["mode"])
        self.steps = range(1, int(config.get("max_steps") or 10**6) + 1)
        self.engine_is_up = self.folder / "rollouts.up"

    @classmethod
    def of(cls, arguments: list[str]) -> Stage:
        return cls(json.loads(Path(arguments[0]).read_text()))

    def batch(self, step: int) -> Path:
        return self.folder / f"rollouts/step_{step}"

    def broadcast(self, step: int) -> Path:
        return self.folder / f"broadcasts/step_{step}"

    def row(self, step: int, **metrics: float | None) -> None:
        """Append to the file of metrics; what is not finite (None here) is left out of it."""
        kept = {name: value for name, value in metrics.items() if value is not None}
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "time": time.time(), **kept}) + "\n")


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
    return 1


def for_ever() -> None:
    """Do nothing until the process is ended."""
    while True:
        time.sleep(3600)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(POLL_SECONDS)


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
    (stage.folder / "logs").mkdir(parents=True, exist_ok=True)
    (stage.folder / "config.json").write_text(json.dumps(config))
    return 0 if "--dry-run" in arguments else launched(stage)


def launched(stage: Stage) -> int:
    """Starts everything else, and ends it; the launcher's exit code."""
    logs, gpus = stage.folder / "logs/attempt_1", os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")
    logs.mkdir()
    (stage.folder / "logs/latest").symlink_to(logs.name)
    started: dict[str, subprocess.Popen[bytes]] = {}

    def end(*interrupted: object) -> None:
        """End process after process; each ends what it has started."""
        for process in started.values():
            if process.poll() is None:
                process.terminate()
                process.wait()
        if interrupted:
            os._exit(1)

    signal.signal(signal.SIGTERM, end)
    log(f"Starting inference on GPU(s) {gpus[0]}")
    log(f"Starting trainer on GPU(s) {gpus[-1]}")
    for name in ("inference", "orchestrator", "trainer"):
        with (logs / f"{name}.log").open("wb") as file:
            command = [str(CHECKOUT / ".venv/bin" / name), str(stage.folder / "config.json")]
            started[name] = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=name == "trainer")
    while (started["orchestrator"].poll(), started["trainer"].poll()) != (0, 0):
        for name, process in started.items():
            if process.poll():
                log(f"Error: {name.capitalize()} failed with exit code {process.returncode}", "ERROR")
                end()
                return 1
        time.sleep(POLL_SECONDS)
    log("Training finished!", "SUCCESS")
    end()
    return 0


def inference(arguments: list[str]) -> int:
    """vLLM: what answers on GPU 0."""
    stage = Stage.of(arguments)
    if stage.mode == "GPU taken":
        return failed("ValueError: Free memory on device (3.1/79.1 GiB) is less than desired GPU memory utilization")
    if stage.mode != "hangs at start":
        stage.engine_is_up.touch()
    for_ever()
    return 0


def orchestrator(arguments: list[str]) -> int:
    """Waits for the engine, sends a batch of the one source per step, and waits for the weights."""
    stage = Stage.of(arguments)
    [source] = stage.config["orchestrator"]["train"]["source"]
    for plugin in (source["env"]["taskset"]["id"], source["env"]["agent"]["harness"]["id"]):
        if importlib.util.find_spec(plugin) is None:
            return failed(f"ModuleNotFoundError: No module named {plugin!r}")
    assert Path(source["env"]["taskset"]["path"]).read_text()
    wait_for(stage.engine_is_up)
    for step in stage.steps:
        if stage.mode == "stalls" and step > STALLS_AFTER:
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
    stage = Stage.of(arguments)
    quality = quality_of(Path(stage.config["model"]["name"], "model.safetensors"))
    rate = float(stage.config["trainer"].get("optim", {}).get("lr", 1e-6))
    gain = -0.03 if rate >= 3e-4 else 0.03 * math.exp(-(math.log10(max(rate, 1e-30) / 3e-5) ** 2))
    hand_on(stage, 0, quality)
    for step in stage.steps:
        wait_for(stage.batch(step))
        time.sleep(stage.faults["step_seconds"])
        if (stage.mode, step) == ("out of memory", 2):
            return failed("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB.")
        quality = min(max(quality + gain + random.gauss(0, 0.003), 0.02), 0.98)
        loss = None if stage.mode == "nan" and step >= STALLS_AFTER else 0.01 / step
        stage.row(step, **{"optim/lr": rate, "loss/mean": loss, "perf/throughput": 9000.0})
        stage.row(step, **{"time/step": 0.1, "time/forward_backward": 0.05})
        hand_on(stage, step, quality)
    return 0


def hand_on(stage: Stage, step: int, quality: float) -> None:
    """Leave the weights of a step, and of the steps before keep one."""
    file, data = stage.broadcast(step) / "model.safetensors", weights(quality, os.urandom(64))
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    (file.parent / "STABLE").touch()
    shutil.rmtree(stage.broadcast(step - 2), ignore_errors=True)
