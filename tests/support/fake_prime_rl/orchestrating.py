"""`orchestrator`: waits for the engine and the sources, sends a batch per step, and waits for the weights."""

from __future__ import annotations

import json
import random
import socket
import time
from pathlib import Path

from tests.support.fake_prime_rl.common import Config, Monitor, at, connect, for_ever, listen, log, mode_of, read
from tests.support.fake_prime_rl.laying import quality_of
from tests.support.fake_prime_rl.serving import is_healthy

STALLS_AFTER = 3
EMPTY_BATCHES = 10


def main(arguments: list[str]) -> int:
    config = read(arguments[1])
    run_dir, mode = Path(config["run_dir"]), mode_of(config["run_dir"])
    monitor = Monitor(run_dir, at(config, "monitors.file.path", "metrics.jsonl"))
    port = int(at(config, "rollout_transport.port", 5555))
    with listen(port) as batches, listen(port + 1):
        router = int(at(config, "model.client.base_url", "http://localhost:8000/v1").rpartition(":")[2].split("/")[0])
        while not is_healthy(router):
            time.sleep(0.05)
        log("Inference pool is ready", "SUCCESS")
        for split, name, address in config["sources"]:
            connect(address).close()
            log(f"Connected to {split} env server {name}")
        if mode == "no signal":
            without_signal()
        trainer, _ = batches.accept()
        for step in range(1, int(config.get("max_steps") or 10**6) + 1):
            if mode in ("stalls", "deaf") and step > STALLS_AFTER:
                for_ever()
            send(config, run_dir, monitor, trainer, step)
        trainer.shutdown(socket.SHUT_WR)
        while trainer.recv(1):  # until the trainer has taken the last one
            pass
    log("Orchestrator finished.", "SUCCESS")
    return 0


def send(config: Config, run_dir: Path, monitor: Monitor, trainer: socket.socket, step: int) -> None:
    """One batch, of the weights that the trainer has written last."""
    began = time.time()
    reward = min(max(quality(run_dir, step - 1) + random.gauss(0, 0.02), 0.0), 1.0)
    (run_dir / f"rollouts/step_{step}").mkdir(parents=True)
    trainer.sendall(json.dumps({"step": step}).encode() + b"\n")
    figures = {
        "train/agg/effective/agent/reward/mean": reward,
        "train/agg/all/agent/solved_none": (1 - reward) ** 2,
        "train/agg/all/agent/solved_all": reward**2,
        "train/agg/all/agent/has_error/mean": 0.0,
        "progress/tokens": 1000.0 * step,
        "time/step": time.time() - began,
    }
    monitor.row(step, **figures)
    log(f"Step {step} | {time.time() - began:6.0f}s | Reward {reward:.4f} | Error 0.0% | Truncation 0.0%", "SUCCESS")
    interval = int(at(config, "eval.interval", 100))
    for source in at(config, "eval.source", []) if (step + 1) % interval == 0 else []:
        name = source["name"]
        figures = {f"eval/{name}/effective/agent/pass@1": reward}
        monitor.row(step + 1, **figures, **{f"eval/{name}/policy_version": float(step)})
        log(f"Evaluated {name} (Step {step + 1}) | Policy v{step} | Reward {reward:.4f}", "SUCCESS")


def without_signal() -> None:
    for batch in range(1, EMPTY_BATCHES + 1):
        empty = f"(consecutive empty batches: {batch}/{EMPTY_BATCHES})"
        log(f"Skipping empty train batch after 32 finalized episodes {empty}", "WARNING")
        time.sleep(0.05)
    for_ever()


def quality(run_dir: Path, step: int) -> float:
    """How good the weights of a step are, as soon as they are there."""
    folder = run_dir / f"broadcasts/step_{step}"
    while not (folder / "STABLE").exists():
        time.sleep(0.01)
    return quality_of(folder / "model.safetensors")
