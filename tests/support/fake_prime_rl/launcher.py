"""`rl`: reads and checks the configuration, starts everything else, and ends it.

    rl ── inference (router) ── engine
       ├─ env-server, one for each source
       ├─ orchestrator
       ├─ torchrun ── the trainer's rank, in a session of its own
       └─ tail -F orchestrator.log

normal                every step, then "Training finished!" and 0
hangs at start        it never is
stalls                no batch is sent after step 3, and nothing ends
out of memory         CUDA has none left in the trainer's second step
memory taken          the engine finds too little free when it starts
port taken            the router cannot bind its port
deaf                  no batch is sent after step 3, and every process ignores SIGTERM
orphan                a process of the engine's stays, in a session of its own and without its environment
no signal             every batch is empty, and after ten of them nothing comes
nan                   the loss is no number from step 3 on
crashes               the trainer ends with 1 in step 3, without a word
dies in a broadcast   the trainer is killed while it writes its third weights
env server dies       the first env server ends at its start
refused               the configuration is not taken
disk full             the trainer has no disk left in its second step
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from itertools import pairwise
from pathlib import Path

from tests.support.fake_prime_rl import checking
from tests.support.fake_prime_rl.common import Config, at, faults, laid_over, log, mode_of, read


def main(arguments: list[str]) -> int:
    config = parsed(arguments)
    run_dir = Path(config.get("output_dir", "outputs")) / at(config, "run.name", f"train--{uuid.uuid4().hex[:8]}")
    wrong = checking.check(config)
    if mode_of(run_dir) == "refused":
        wrong.append(("trainer.optim.lr", "Input should be a valid number [type=float_parsing]"))
    if wrong:
        lines = "\n".join(f"{key}\n  {what}" for key, what in wrong)
        sys.stderr.write(f"{len(wrong)} validation error(s) for RLConfig\n{lines}\n")
        return 1
    write_configs(config, run_dir)
    log(f"Wrote subconfigs to {run_dir / 'configs'}")
    if config.get("dry_run"):
        log("Dry run complete. To start an RL run locally, remove --dry-run from your command.", "SUCCESS")
        return 0
    os.environ.setdefault("PRL_RUN_ID", uuid.uuid4().hex)
    if mode_of(run_dir) == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which everything that is started inherits
        return Launched(config, run_dir).watch()
    launched = Launched(config, run_dir)
    signal.signal(signal.SIGTERM, launched.on_sigterm)
    return launched.watch()


def parsed(arguments: list[str]) -> Config:
    """Files in their order, and whether it is a dry run."""
    config: Config = {"dry_run": "--dry-run" in arguments}
    for sign, path in pairwise(arguments):
        if sign == "@":
            config = laid_over(config, read(path))
    return config


def sources(config: Config) -> list[tuple[str, str, int]]:
    """Split, name and port of each env server."""
    named = [
        (split, str(source["name"]))
        for split in ("train", "eval")
        for source in at(config, f"orchestrator.{split}.source", [])
    ]
    first = int(at(config, "orchestrator.env_server_base_port", 5000))
    return [(split, name, first + index) for index, (split, name) in enumerate(named)]


def write_configs(config: Config, run_dir: Path) -> None:
    folder = run_dir / "configs"
    common = {key: config[key] for key in ("max_steps", "model", "monitors", "rollout_transport") if key in config}
    for name in ("trainer", "orchestrator", "inference"):
        part = {**common, **config.get(name, {}), "run_dir": str(run_dir), "sources": sources(config)}
        write(folder / f"{name}.json", laid_over(part, {"model": config.get("model", {})}))
    for split, name, port in sources(config):
        source = next(s for s in at(config, f"orchestrator.{split}.source") if s["name"] == name)
        serve = {"env": source["env"], "serve": {"address": f"tcp://127.0.0.1:{port}"}, "run_dir": str(run_dir)}
        write(folder / f"envs/{split}/{name}.json", serve)


def write(path: Path, value: Config) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))


class Launched:
    """All that one run has started."""

    def __init__(self, config: Config, run_dir: Path) -> None:
        self.started: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.configs, self.gpus = (run_dir / "configs", os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(","))
        attempt = 1 + len(list((run_dir / "logs").glob("attempt_*")))
        self.logs = run_dir / f"logs/attempt_{attempt}"
        self.logs.mkdir(parents=True)
        latest = run_dir / "logs/latest"
        latest.unlink(missing_ok=True)
        latest.symlink_to(self.logs.name)
        self.sources = sources(config)

    def watch(self) -> int:
        """Start everything, and wait for its end; the launcher's exit code."""
        log(f"Starting inference on GPU(s) {self.gpus[0]}")
        self._start("inference", "inference.log", ["inference", "@", f"{self.configs}/inference.json"], self.gpus[0])
        for split, name, port in self.sources:
            log(f"Starting {split} env server {name} at tcp://127.0.0.1:{port}")
            server = ["env-server", "@", f"{self.configs}/envs/{split}/{name}.json"]
            self._start(f"{split} env server {name}", f"envs/{split}/{name}.log", server)
        log("Starting orchestrator process")
        orchestrator = self._start(
            "orchestrator", "orchestrator.log", ["orchestrator", "@", f"{self.configs}/orchestrator.json"]
        )
        log(f"Starting trainer on GPU(s) {self.gpus[-1]}")
        torchrun = ["torchrun", f"--rdzv-id={uuid.uuid4().hex}", f"--log-dir={self.logs}/trainer/torchrun"]
        torchrun += ["--nproc-per-node=1", "-m", "prime_rl.trainer.rl.train", "@", f"{self.configs}/trainer.json"]
        trainer = self._start("trainer", "trainer.log", torchrun, self.gpus[-1])
        log("Startup complete. Showing orchestrator logs...", "SUCCESS")
        tail = subprocess.Popen(["tail", "-n", "+1", "-F", self.logs / "orchestrator.log"], stderr=subprocess.DEVNULL)
        self.started.append(("tail", tail))
        while (orchestrator.poll(), trainer.poll()) != (0, 0):
            for name, process in self.started:
                if process.poll():
                    log(f"Error: {name.capitalize()} failed with exit code {process.returncode}", "ERROR")
                    log("Terminating all processes...", "ERROR")
                    self.end()
                    return 1
            time.sleep(0.05)
        log("Training finished!", "SUCCESS")
        self.end()
        return 0

    def on_sigterm(self, *_: object) -> None:
        log("Received SIGTERM, terminating all processes...", "WARNING")
        self.end()
        os._exit(1)

    def end(self) -> None:
        """Let the threads be joined, then end process after process, each after what it has started."""
        time.sleep(faults()["join_seconds"] * len(self.started))
        for _, process in self.started:
            if process.poll() is not None:
                continue
            for pid in descendants(process.pid):
                try:
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    continue
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()

    def _start(self, name: str, to: str, command: list[str], gpu: str | None = None) -> subprocess.Popen[bytes]:
        path = self.logs / to
        path.parent.mkdir(parents=True, exist_ok=True)
        variables = os.environ | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})
        with path.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=variables)
        self.started.append((name, process))
        return process


def descendants(pid: int) -> list[int]:
    """What a process has started, and what that has, as far as the parents still live."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(fields[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]
