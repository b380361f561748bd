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
from prime_rl_parts.keys import PROJECTIONS, Key

HARNESSES = Path(__file__).with_name("harnesses")
"""Verifiers harnesses of ours, which prime-rl's processes import by their names alone."""
HOPPER_OR_NEWER = ("flash_attention_3", "flash_attention_4")
CUSTOM = frozenset(
    {"llama", "qwen3", "afmoe", "glm4_moe", "glm_moe_dsa", "laguna", "minimax_m2", "nemotron_h", "qwen3_moe",
     "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe", "gpt_oss"}
)  # fmt: skip
"""Types of models that prime-rl has code of its own for, at commit 559b4477 (src/prime_rl/trainer/models)."""
MADE_AT = "made_at"
"""The file in a folder of compiled kernels that says where they were compiled: vLLM notes the paths of its own, and an
engine that does not find them there ends. In bubblewrap that is the same path in every trial."""
PHASES = {"linear": ("warmup_steps", "decay_steps"), "cosine": ("warmup_steps",)}
"""The phases of prime-rl's schedulers of the learning rate, by their types."""
PHASE_STEPS = 10
"""Steps of each phase, where nothing is said."""
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
    """The name of what is reported: the mean on data/curve.jsonl, or without it the mean reward in training."""
    curve_interval: int = 4
    """Steps between evaluations on data/curve.jsonl: a curve, never a score."""
    curve_temperature: float = 1.0
    """Of the answers to it: as the judge samples, so that trials with other temperatures in training compare."""
    curve_tokens: int = 1024
    """The longest answer to it."""
    cache: str = ""
    """Folder of compiled kernels, of which each run gets a copy; empty: `.cache` in the checkout, if it is there."""
    keep_cache: bool = False
    """Whether to leave what was compiled in out/prime_rl/cache, to be put there."""
    start_deadline: float = 400.0
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
            if wrong := Key(type(known[name]), low=0.0 if name == "curve_temperature" else 0.1).fault(value):
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
        self.kept = self.home / "cache"
        self.cache = Path(os.environ["TMPDIR"], "prime_rl_cache") if "TMPDIR" in os.environ else self.kept

    @property
    def of_driver(self) -> Path:
        """Where the driver keeps what it compiles, such as vLLM's attention on most GPUs; it has to be there."""
        return self.cache / "driver"

    def overlay(self, tuned: str) -> dict[str, Any]:
        """The keys that override train.toml."""
        stated = tomllib.loads(tuned)
        orchestrator: dict[str, Any] = {
            "env_server_base_port": self.port + 4,
            "model": {"client": {"base_url": f"http://localhost:{self.port}/v1"}},
            "renderer": {"name": self.settings.renderer},
            "train": {"source": [{**self._source("train", self.questions), **self._curriculum(stated)}]},
        }
        if (curve := self.data / "curve.jsonl").is_file():
            settings = self.settings
            sampling = {"temperature": settings.curve_temperature, "max_completion_tokens": settings.curve_tokens}
            often = {"interval": settings.curve_interval, "skip_first_step": True}
            orchestrator["eval"] = {**often, "sampling": sampling, "source": [self._source("curve", curve)]}
        steps = self.config["budget_steps"] or 0
        return {
            "output_dir": str(self.home),
            **({"max_steps": steps} if steps else {}),
            "run": {"name": self.folder.name},
            "model": {"name": str(self.base)},
            "deployment": {"gpus_per_node": 2, "num_infer_gpus": 1, "num_train_gpus": 1},
            "weight_broadcast": {"type": "filesystem"},
            "monitors": {"file": {"path": "metrics.jsonl"}},
            "rollout_transport": {"type": "zmq", "port": self.port + 2},
            "trainer": {
                "model": {"conversion_dir": str(self.home / "converted"), **self._model(stated)},
                **self._scheduler(stated, steps),
            },
            "inference": {
                "backend_port": self.port + 1,
                "server": {"port": self.port},
                # Or what a request leaves out is taken from the model's generation_config.json: a repetition penalty.
                "vllm": {"seed": self.config["seed"] % 2**31, "generation_config": "vllm"},
            },
            "orchestrator": orchestrator,
        }

    def _scheduler(self, stated: dict[str, Any], steps: int) -> dict[str, Any]:
        """Shorter phases for the few steps of a part of the budget, where nothing is said: prime-rl's take ten each."""
        scheduler = stated.get("trainer", {}).get("scheduler", {})
        phases = PHASES.get(scheduler.get("type", ""), ())
        if not 1 < steps < 2 * PHASE_STEPS or scheduler.keys() & {*phases}:
            return {}
        return {"scheduler": dict.fromkeys(phases, steps // 2)} if phases else {}

    def _model(self, stated: dict[str, Any]) -> dict[str, Any]:
        """Of the model that trains: an attention that works, and what adapters are beside, where nothing is said.

        prime-rl's own list of layers has those of experts, whose adapters have no place in the model's own weights.
        Where it computes activations again, it draws dropout again too.
        """
        model = stated.get("trainer", {}).get("model", {})
        told: dict[str, Any] = self._attention(model) | self._offloading(model)
        if not isinstance(lora := model.get("lora"), dict):
            return told
        if lora.get("dropout") and model.get("ac") != "None":
            why = "prime-rl computes activations again in the backward pass, with another dropout than in the loss"
            remedy = "set trainer.model.ac and trainer.model.ac_offloading to 'None', or leave it out"
            raise Failed(f"refused: trainer.model.lora.dropout: {why}: {remedy}")
        if "target_modules" not in lora:
            told["lora"] = {"target_modules": list(PROJECTIONS)}
        return told

    def _offloading(self, stated: dict[str, Any]) -> dict[str, str]:
        """Activations that are not computed again are not offloaded either.

        prime-rl offloads them if nothing is said, and wherever it offloads it switches `ac` on again.
        """
        if stated.get("ac") != "None":
            return {}
        if stated.get("ac_offloading", "None") != "None":
            why = "prime-rl computes activations again wherever it offloads them"
            remedy = "set trainer.model.ac_offloading to 'None' too, or leave ac out"
            raise Failed(f"refused: trainer.model.ac = 'None' beside trainer.model.ac_offloading: {why}: {remedy}")
        return {"ac_offloading": "None"}

    def _curriculum(self, stated: dict[str, Any]) -> dict[str, Any]:
        """What train.toml says of the one source, whose list is the engine's; what is drawn is drawn by the seed."""
        said = stated.get("orchestrator", {}).get("train", {}).get("source", {}).get("curriculum", {})
        sampler = said.get("sampler", {})
        if sampler.get("type") == "difficulty_pool":
            said = {**said, "sampler": {**sampler, "seed": self.config["seed"] % 2**31}}
        return {"curriculum": said} if said else {}

    def _attention(self, stated: dict[str, Any]) -> dict[str, str]:
        """The attention of a model that prime-rl trains in transformers' code, which 3 and 4 do not work with.

        Left alone, prime-rl takes 3 on Hopper and 4 on Blackwell for every model, and ends when the model is loaded.
        """
        attention, path = stated.get("attn", "auto"), self.base / "config.json"
        kind = json.loads(path.read_text()).get("model_type") if path.is_file() else None
        if stated.get("impl", "auto") != "hf" and kind in CUSTOM:
            return {}
        if attention in HOPPER_OR_NEWER:
            whose = f"models of type {kind}" if kind not in CUSTOM else 'trainer.model.impl = "hf"'
            raise Failed(f"refused: trainer.model.attn = {attention!r}: prime-rl has it not for {whose}: leave it out")
        return {"attn": "flash_attention_2"} if attention == "auto" else {}

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
            "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it is compiled by nvcc at the start, and only top-k and top-p need it
            "VLLM_CACHE_ROOT": str(self.cache / "vllm"),
            "TRITON_CACHE_DIR": str(self.cache / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache / "inductor"),
            "FLASHINFER_WORKSPACE_BASE": str(self.cache),
            "CUDA_CACHE_PATH": str(self.of_driver),
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

    def set_aside(self) -> None:
        """Move what a first start has left out of the way, if anything: `rl` begins in no folder with artifacts."""
        if self.folder.exists():
            self.folder.rename(self.home / "first_start")
        (self.home / "rl.log").rename(self.home / "first_start.log")

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
