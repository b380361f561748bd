"""A stand-in for a checkout of prime-rl, laid into a folder: its `rl`, with the processes and files of the real one.

    checkout = lay(tmp_path / "prime-rl", "out of memory")
    subprocess.run([checkout / ".venv/bin/rl", "@", "train.toml", "@", "engine.toml"])

    rl ── inference, which answers and does nothing
       └─ trainer, in a session of its own

Nothing is learnt and no GPU is used: the weights hold a number, `quality`, that rises at each step. `rl` itself writes
what the real programs do into the run's directory, which is that of prime-rl in August 2026.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCRIPT = "#!{python} -SB\nimport sys\nsys.path.insert(0, {source!r})\nimport fake_prime_rl\nsys.exit(fake_prime_rl.rl(sys.argv[1:]))\n"
CHECKOUT = Path(__file__).resolve().parents[1]
"""Of a copy of this file that was laid."""
Config = dict[str, Any]


def lay(folder: Path, fault: str = "") -> Path:
    """Lay out the checkout, in which this goes wrong; its folder, as an absolute path."""
    folder = folder.absolute()
    source, programs = folder / "src", folder / ".venv/bin"
    source.mkdir(parents=True, exist_ok=True)
    programs.mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, source / "fake_prime_rl.py")
    (programs / "rl").write_text(SCRIPT.format(python=sys.executable, source=str(source)))
    (programs / "python").write_text("#!/bin/sh\necho 2.11.0 with CUDA 12.8\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    (folder / "fault").write_text(fault)
    return folder


def base_model(folder: Path) -> Path:
    """A model directory of the form that training starts from, with weights that only the stand-in can read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "stand_in", "hidden_size": 4}))
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.1, "top_k": 20, "top_p": 0.8}))
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (folder / "model.safetensors").write_bytes(weights(0.4))
    return folder


def weights(quality: float) -> bytes:
    """One tensor of one number in the safetensors format."""
    header = json.dumps({"model.norm.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack("<f", quality)


def quality_of(file: Path) -> float:
    """What `weights` was given."""
    return float(struct.unpack("<f", file.read_bytes()[-4:])[0])


def rl(arguments: list[str]) -> int:
    """Reads and checks the configuration, then trains; the exit status."""
    tuned, config = (tomllib.loads(Path(path).read_text()) for path in arguments[1:4:2])
    # The second file is laid over the first.
    sizes = tuned.get("orchestrator", {}) | config["orchestrator"]
    folder = Path(config["output_dir"], config["run"]["name"])
    fault = (CHECKOUT / "fault").read_text()
    batch, group = (sizes.get(name, 1) for name in ("batch_size", "group_size"))
    if fault == "refused" or batch % group:
        wrong = f"orchestrator\n  Value error, batch_size {batch} must be divisible by group_size {group}"
        sys.stderr.write(f"1 validation error(s) for RLConfig\n{wrong}\n")
        return 1
    if "--dry-run" in arguments:
        return 0
    [source] = config["orchestrator"]["train"]["source"]
    for plugin in (source["env"]["taskset"]["id"], source["env"]["agent"]["harness"]["id"]):
        assert importlib.util.find_spec(plugin), f"ModuleNotFoundError: No module named {plugin!r}"
    assert Path(source["env"]["taskset"]["path"]).read_text()
    return launched(folder, config, fault)


def launched(folder: Path, config: Config, fault: str) -> int:
    """Starts its processes, trains, and ends them."""
    logs = folder / "logs/attempt_1"
    logs.mkdir(parents=True)
    (folder / "logs/latest").symlink_to(logs.name)
    idle = [sys.executable, "-IS", "-c", "import time; time.sleep(3600)", str(folder)]
    started = [subprocess.Popen(idle), subprocess.Popen(idle, start_new_session=True)]

    def end(*interrupted: object) -> None:
        for process in started:
            process.terminate()
            process.wait()
        if interrupted:
            os._exit(1)

    signal.signal(signal.SIGTERM, end)
    failure = trained(folder, config, fault)
    for name, words in failure.items():
        (logs / f"{name}.log").write_text(f"Traceback (most recent call last):\n  [...]\n{words}\n")
        sys.stdout.write(f"Error: {name.capitalize()} failed with exit code 1\n")
    end()
    return len(failure)


def trained(folder: Path, config: Config, fault: str) -> dict[str, str]:
    """Every step, as far as it comes; the last words of the program that failed."""
    quality = quality_of(Path(config["model"]["name"], "model.safetensors"))
    if fault == "GPU taken":
        return {"inference": "ValueError: Free memory on device (3/79 GiB) is less than desired GPU memory utilization"}
    if fault == "hangs at start":
        signal.pause()
    hand_on(folder, 0, quality)
    for step in range(1, int(config.get("max_steps") or 10**6) + 1):
        if (fault, step) == ("stalls", 4):
            signal.pause()
        if (fault, step) == ("out of memory", 2):
            return {"trainer": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB."}
        quality = min(quality + 0.01, 0.99)
        row(folder, step, {"train/agg/effective/agent/reward/mean": quality, "progress/tokens": 1000.0 * step})
        time.sleep(0.05)
        loss = {} if fault == "nan" and step >= 3 else {"loss/mean": 0.01 / step}  # what is not finite is left out
        row(folder, step, {"perf/throughput": 9000.0, **loss})
        row(folder, step, {"time/step": 0.1, "time/forward_backward": 0.05})
        hand_on(folder, step, quality)
    return {}


def row(folder: Path, step: int, metrics: Mapping[str, float]) -> None:
    """Append to the file of metrics."""
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "time": time.time(), **metrics}) + "\n")


def hand_on(folder: Path, step: int, quality: float) -> None:
    """Leave the weights of a step, and of the steps before keep one."""
    place = folder / f"broadcasts/step_{step}"
    place.mkdir(parents=True)
    (place / "model.safetensors").write_bytes(weights(quality))
    (place / "STABLE").touch()
    shutil.rmtree(folder / f"broadcasts/step_{step - 2}", ignore_errors=True)
