"""One training: its parameters as keys of prime-rl, what is laid over train.toml, and the command that starts `rl`."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from _program import Failed, parse

HARNESSES = Path(__file__).with_name("harnesses")
"""Our verifiers harness, which prime-rl's processes import by its name alone."""
PORT = 8000
"""The first of six, and 21,000 above it that of vLLM's router: the sandbox has ports of its own."""
CURVE_STEPS = 4
"""Steps between evaluations on data/curve.jsonl: a curve, never a score."""

DOTTED = {
    "learning_rate": "trainer.optim.lr",
    "weight_decay": "trainer.optim.weight_decay",
    "scheduler": "trainer.scheduler.type",
    "kl_tau": "trainer.loss.kl_tau",
    "mask_low": "trainer.loss.dppo_mask_low",
    "mask_high": "trainer.loss.dppo_mask_high",
    "lora_rank": "trainer.model.lora.rank",
    "lora_alpha": "trainer.model.lora.alpha",
    "batch_size": "orchestrator.batch_size",
    "group_size": "orchestrator.group_size",
    "algorithm": "orchestrator.algo.type",
    "max_off_policy_steps": "orchestrator.max_off_policy_steps",
    "temperature": "orchestrator.train.sampling.temperature",
    "max_completion_tokens": "orchestrator.train.sampling.max_completion_tokens",
}
"""Short names of parameters; any other is prime-rl's own dotted key. Which there are, `rl --dry-run` says."""


def as_tables(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the nested tables of prime-rl."""
    tables: dict[str, Any] = {}
    for name, value in params.items():
        for part in reversed(DOTTED.get(name, name).split(".")):
            value = {part: value}
        tables = laid_over(tables, value)
    return tables


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One file laid over another, as prime-rl does: tables are merged, all else is replaced, lists as a whole."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


def at(table: Any, key: str) -> Any:
    """The value of a dotted key; None where there is none."""
    for part in key.split("."):
        table = table.get(part) if isinstance(table, dict) else None
    return table


@dataclass(frozen=True)
class Settings:
    """The fixed parameters. Deadlines are seconds."""

    prime_rl: str = ""
    """Path of prime-rl's checkout, with its environment in .venv."""
    metric: str = "pass@1"
    """The name of what is reported: the mean on data/curve.jsonl, or without it the mean reward in training."""
    curve_tokens: int = 1024
    """The longest answer to a question of data/curve.jsonl."""
    start_deadline: float = 800.0
    """From the launch to the first answer or metric. Most of it is compilation."""
    stall_deadline: float = 300.0
    """Without a new row of metrics."""
    quit_deadline: float = 90.0
    """For `rl` to end after SIGTERM."""

    @classmethod
    def split(cls, params: dict[str, Any]) -> tuple[Settings, dict[str, Any]]:
        """The settings, and the remaining parameters, which are prime-rl's."""
        own = {one.name: params[one.name] for one in fields(cls) if one.name in params}
        return parse(cls, own), {name: value for name, value in params.items() if name not in own}


@dataclass
class Run:
    """One training: its configuration and its paths."""

    config: dict[str, Any]
    settings: Settings
    train: str = ""
    """The text of train.toml, as its author wrote it."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """prime-rl's tables that are laid over it."""

    def __post_init__(self) -> None:
        self.home = Path(self.config["out"]) / "prime_rl"
        self.folder = self.home / "run"
        self.train_file, self.engine_file = self.home / "train.toml", self.home / "engine.toml"
        self.bin = Path(self.settings.prime_rl) / ".venv" / "bin"
        self.data = Path(self.config["data"] or "nowhere")
        self.base = self.data / "base"
        self.questions = self.home / "train.jsonl"

    @property
    def stated(self) -> dict[str, Any]:
        """What train.toml and the parameters say together. Raises Failed: the file is not TOML."""
        try:
            return laid_over(tomllib.loads(self.train), self.parameters)
        except (ValueError, RecursionError) as broken:
            raise Failed(f"refused: train.toml: {broken}") from broken

    def overlay(self) -> dict[str, Any]:
        """The file that is laid over train.toml: the parameters, and above them what is the engine's."""
        orchestrator: dict[str, Any] = {
            "env_server_base_port": PORT + 4,
            "model": {"client": {"base_url": f"http://localhost:{PORT}/v1"}},
            "renderer": {"name": "default"},
            "train": {"source": [self._stated_source() | self._source("train", self.questions)]},
        }
        if (curve := self.data / "curve.jsonl").is_file():
            # As the judge samples, so that trials with other temperatures in training compare.
            sampling = {"temperature": 1.0, "max_completion_tokens": self.settings.curve_tokens}
            often = {"interval": CURVE_STEPS, "skip_first_step": True}
            orchestrator["eval"] = {**often, "sampling": sampling, "source": [self._source("curve", curve)]}
        own = {
            "output_dir": str(self.home),
            "clean": False,  # or prime-rl deletes folders that train.toml names
            "slurm": "None",  # or prime-rl trains elsewhere
            **({"max_steps": steps} if (steps := self.config["budget_steps"]) else {}),
            "run": {"name": self.folder.name},
            "model": {"name": str(self.base)},
            "deployment": {"gpus_per_node": 2, "num_infer_gpus": 1, "num_train_gpus": 1},
            "weight_broadcast": {"type": "filesystem"},
            "monitors": {"file": {"path": "metrics.jsonl"}},
            "rollout_transport": {"type": "zmq", "port": PORT + 2},
            "trainer": {"model": {"conversion_dir": str(self.home / "converted")}},
            "inference": {
                "backend_port": PORT + 1,
                "server": {"port": PORT},
                # Or what a request leaves out is taken from the model's generation_config.json: a repetition penalty.
                "vllm": {"seed": self.config["seed"] % 2**31, "generation_config": "vllm"},
            },
            "orchestrator": orchestrator,
        }
        return laid_over(self.parameters, own)

    def _stated_source(self) -> dict[str, Any]:
        """What is said of the one source of questions, such as its curriculum; prime-rl replaces lists as a whole."""
        stated = at(self.stated, "orchestrator.train.source") or {}
        sources = stated if isinstance(stated, list) else [stated]
        if len(sources) != 1 or not isinstance(sources[0], dict):
            raise Failed("refused: train.toml: orchestrator.train.source: the environment's questions are one source")
        return sources[0]

    def _source(self, name: str, questions: Path) -> dict[str, Any]:
        agent = {"harness": {"id": "ask_once"}, "runtime": {"type": "subprocess"}, "timeout": {"scoring": 30.0}}
        return {"name": name, "env": {"taskset": {"id": "taskset", "path": str(questions)}, "agent": agent}}

    def variables(self) -> dict[str, str]:
        """The environment of prime-rl's processes: ours, with its own Python first, and nothing fetched."""
        mine = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
        return mine | {
            "PATH": f"{self.bin}{os.pathsep}{mine.get('PATH', os.defpath)}",
            "PYTHONPATH": os.pathsep.join(map(str, (Path.cwd(), HARNESSES))),
            "VLLM_HOST_IP": "127.0.0.1",  # or it asks the network for its own address
            "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it is compiled by nvcc at the start, and only top-k and top-p need it
            **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"), "1"),
            "WANDB_MODE": "disabled",
        }

    def start(self, *more: str, log: str) -> subprocess.Popen[bytes]:
        """Launch `rl` on both files."""
        command = [str(self.bin / "rl"), "@", str(self.train_file), "@", str(self.engine_file), *more]
        with (self.home / log).open("wb") as output:
            return subprocess.Popen(
                command, cwd=self.settings.prime_rl, env=self.variables(), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
