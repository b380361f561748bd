"""One training: its fixed parameters, the overrides of train.toml, and the command that starts `rl`."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from prime_rl_parts import Cancelled, Failed
from prime_rl_parts.keys import Key

HARNESSES = Path(__file__).with_name("harnesses")
"""Verifiers harnesses of ours, which prime-rl's processes import by their names alone."""
OURS = "nightshift-"
"""Prefix of a training's marker, PRL_RUN_ID, which all of its processes inherit."""


@dataclass(frozen=True)
class Settings:
    """The fixed parameters. Deadlines are seconds."""

    prime_rl: str
    """Path of prime-rl's checkout, with its environment in .venv."""
    prime_rl_commit: str = ""
    """Required prefix of its commit; empty: any."""
    model: str = ""
    """Directory of the model to begin with; empty: data/base."""
    renderer: str = "default"
    harness: str = "ask_once"
    """The verifiers harness in training: a module of harnesses/, "taskset" for the one in taskset.py, or a built-in."""
    metric: str = "pass@1"
    """The name under which the mean reward in training is reported."""
    eval_interval: int = 5
    """Steps between evaluations on data/curve.jsonl, where there is one: a curve, never a score."""
    start_deadline: float = 180.0
    """From the launch to the first answer or metric."""
    stall_deadline: float = 300.0
    """Without a new row of metrics."""
    gpu_deadline: float = 60.0
    """For the memory of the GPUs to become free, before and after orphans are ended."""
    gpu_used_mb: float = 1024.0
    """A GPU with at most so many MiB in use counts as free."""
    quit_deadline: float = 90.0
    """For `rl` to end after SIGTERM."""
    empty_batches: int = 4
    """Consecutive batches without any signal that end a training."""

    @classmethod
    def split(cls, params: dict[str, Any]) -> tuple[Settings, dict[str, Any]]:
        """The settings, and the remaining parameters, which go to train.toml."""
        known: dict[str, Any] = {one.name: one.default for one in fields(cls)} | {"prime_rl": ""}
        own = {name: value for name, value in params.items() if name in known}
        for name, value in own.items():
            if wrong := Key(type(known[name]), low=0.1).fault(value):
                raise Failed(f"refused: {name} {wrong}")
        if not own.get("prime_rl"):
            raise Failed("refused: the fixed parameter prime_rl, the path of a prime-rl checkout, is needed")
        return cls(**own), {name: value for name, value in params.items() if name not in known}


@dataclass
class Run:
    """One training: its configuration and its paths."""

    config: dict[str, Any]
    settings: Settings
    marker: str = field(default_factory=lambda: OURS + secrets.token_hex(8))
    gpus: tuple[int, ...] = ()
    port: int = 0
    """The first of its ports."""
    told: bool = False
    """Whether it was told to end. No threading.Event: setting one in a signal handler may wait for itself."""

    def __post_init__(self) -> None:
        self.home = Path(self.config["out"]) / "prime_rl"
        self.folder = self.home / "run"
        self.bin = Path(self.settings.prime_rl) / ".venv" / "bin"
        self.data = Path(self.config["data"] or "nowhere")
        self.base = Path(self.settings.model or self.data / "base")
        self.questions = self.home / "train.jsonl"

    def overlay(self, tuned: str) -> dict[str, Any]:
        """The keys that override train.toml."""
        train = tomllib.loads(tuned).get("orchestrator", {}).get("train", {})
        orchestrator: dict[str, Any] = {
            "env_server_base_port": self.port + 4,
            "model": {"client": {"base_url": f"http://localhost:{self.port}/v1"}},
            "renderer": {"name": self.settings.renderer},
            "train": {"source": [self._source("train", self.questions)]},
        }
        if (curve := self.data / "curve.jsonl").is_file():
            measured = {"sampling": train.get("sampling", {}), "source": [self._source("curve", curve)]}
            often = {"interval": self.settings.eval_interval, "skip_first_step": True}
            orchestrator["eval"] = often | measured
        steps = self.config["budget_steps"]
        return {
            "output_dir": str(self.home),
            **({"max_steps": steps} if steps else {}),
            "run": {"name": self.folder.name},
            "model": {"name": str(self.base)},
            "deployment": {"gpus_per_node": 2, "num_infer_gpus": 1, "num_train_gpus": 1},
            "weight_broadcast": {"type": "filesystem"},
            "monitors": {"file": {"path": "metrics.jsonl"}},
            "rollout_transport": {"type": "zmq", "port": self.port + 2},
            "trainer": {"model": {"conversion_dir": str(self.home / "converted")}},  # the base is read-only
            "inference": {
                "backend_port": self.port + 1,
                "server": {"port": self.port},
                "vllm": {"seed": self.config["seed"] % 2**31},
            },
            "orchestrator": orchestrator,
        }

    def _source(self, name: str, questions: Path) -> dict[str, Any]:
        agent: dict[str, Any] = {"harness": {"id": self.settings.harness}, "runtime": {"type": "subprocess"}}
        agent |= {"timeout": {"scoring": 30.0}}
        return {"name": name, "env": {"taskset": {"id": "taskset", "path": str(questions)}, "agent": agent}}

    def variables(self) -> dict[str, str]:
        """The environment of prime-rl's processes: ours, with its own Python first, and nothing fetched."""
        other = ("VIRTUAL_ENV", "PYTHONHOME")
        mine = {name: value for name, value in os.environ.items() if name not in other}
        return mine | {
            "PATH": f"{self.bin}{os.pathsep}{mine.get('PATH', os.defpath)}",
            "PYTHONPATH": os.pathsep.join(map(str, (Path.cwd(), HARNESSES))),
            "PRL_RUN_ID": self.marker,
            "SPT_NOENV": "1",  # or the titles that its processes give themselves wipe that out
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus)),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi counts
            "VLLM_HOST_IP": "127.0.0.1",  # or it asks the network for its own address
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "WANDB_MODE": "disabled",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }

    def start(self, *more: str, log: str) -> subprocess.Popen[bytes]:
        """Launch `rl` on both files."""
        command = [str(self.bin / "rl"), *("@", str(self.home / "train.toml")), *("@", str(self.home / "engine.toml"))]
        with (self.home / log).open("wb") as output:
            try:
                return subprocess.Popen(
                    [*command, *more], cwd=self.settings.prime_rl, env=self.variables(), start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                )  # fmt: skip
            except OSError as fault:
                hint = "is the Python that .venv links to readable too?"
                raise Failed(f"did not start: {command[0]}: {fault.strerror}; {hint}") from fault

    def note(self, **facts: object) -> None:
        """Add facts to run.json."""
        path = self.home / "run.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | facts, indent=2) + "\n")

    def wait(self, seconds: float) -> None:
        """Sleep before the launch, unless cancelled or told to stop."""
        time.sleep(seconds)
        if Path("cancel").exists():
            raise Cancelled
        if self.told:
            raise Failed("left nothing to score: it was told to stop before training began")

    def tell(self, *_: object) -> None:
        """Tell it to end; a signal handler."""
        self.told = True
