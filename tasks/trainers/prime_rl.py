"""prime-rl on two GPUs: its `rl` launched, watched and ended as one training, from train.toml to out/model.

prime-rl (github.com/PrimeIntellect-ai/prime-rl) trains a language model on one GPU while vLLM answers on another, in
an environment of its own, `<prime_rl>/.venv`; this program starts `rl` from there and imports none of it.

    python train.py        trains as ./config.json and ./train.toml say: out/progress.jsonl on the way, then out/model
    python train.py check  says whether prime-rl's own `rl --dry-run` takes them; without a GPU

train.toml is in prime-rl's own keys, and is handed to it as it is. Laid over it is out/prime_rl/engine.toml: the
parameters, and what the engine sets, such as paths, ports, questions and the budget. `Settings` lists the fixed
parameters.

Training ends after `budget_steps`, or on SIGTERM: `rl` then gets `quit_deadline` seconds, what is left of it is killed,
and the last complete weights that vLLM was handed make out/model. The environment's grace_seconds has to allow for
that: 150 with the default, for a small model. A file `cancel` ends it without a model, with status 42. Where there is
no model the last line of out/progress.jsonl says why: {"failed": reason, "retry": whether it is the machine's fault}.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tomlkit
from safetensors import safe_open

from _program import Cancelled, Config, Failed, ProgressFile, main, parse

HARNESSES = Path(__file__).with_name("prime_rl_parts") / "harnesses"
"""Our verifiers harness and taskset, which prime-rl's processes import by their name alone."""
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
    said = (f"{DOTTED.get(name, name)} = {json.dumps(value, ensure_ascii=False)}" for name, value in params.items())
    return tomllib.loads("\n".join(said))


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One file laid over another, as prime-rl does: tables are merged, all else is replaced, lists as a whole."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


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


class Run:
    """One training, as config.json and ./train.toml say: its settings and its paths."""

    def __init__(self, config: Config) -> None:
        """Raises Refused: a parameter of ours is none. Its folder is empty yet."""
        theirs = dict(config["params"])
        own = {one.name: theirs.pop(one.name) for one in fields(Settings) if one.name in theirs}
        self.config, self.settings = config, parse(Settings, own)
        self.train = Path("train.toml").read_text(errors="replace")
        self.parameters = as_tables(theirs)  # laid over it
        self.home = Path(config["out"]) / "prime_rl"
        self.folder = self.home / "run"
        self.train_file, self.engine_file = self.home / "train.toml", self.home / "engine.toml"
        self.bin = Path(self.settings.prime_rl) / ".venv" / "bin"
        self.data = Path(config["data"] or "nowhere")
        self.base = self.data / "base"
        self.questions = self.home / "train.jsonl"
        self.home.mkdir(parents=True, exist_ok=True)

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
        """What train.toml and the parameters say of the one source of questions, such as its curriculum; prime-rl
        replaces lists as a whole. Raises Failed: there are several, or the file is not TOML.
        """
        try:
            stated: Any = laid_over(tomllib.loads(self.train), self.parameters)
        except (ValueError, RecursionError) as broken:
            raise Failed(f"refused: train.toml: {broken}") from broken
        for part in ("orchestrator", "train", "source"):
            stated = stated.get(part) if isinstance(stated, dict) else None
        sources = stated if isinstance(stated, list) else [stated or {}]
        if len(sources) != 1 or not isinstance(sources[0], dict):
            raise Failed("refused: train.toml: orchestrator.train.source: the environment's questions are one source")
        return sources[0]

    def _source(self, name: str, questions: Path) -> dict[str, Any]:
        agent = {"harness": {"id": "ask_once"}, "runtime": {"type": "subprocess"}, "timeout": {"scoring": 30.0}}
        return {"name": name, "env": {"taskset": {"id": "ask_once", "path": str(questions)}, "agent": agent}}

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


def why(run: Run, otherwise: str) -> Failed:
    """The known failure in the ends of the logs; otherwise `otherwise` with their decisive lines. The log of the
    component that failed comes first, where the launcher says which that is.
    """
    folder, launcher = run.folder / "logs" / "latest", read(run.home / "rl.log")
    paths = [folder / "trainer.log", *folder.glob("trainer/torchrun/**/stderr.log"), folder / "inference.log"]
    paths += [folder / "orchestrator.log", *folder.glob("envs/*/*.log")]
    texts = {path.relative_to(folder).as_posix(): read(path) for path in paths} | {"rl.log": launcher}
    failed = re.search(r"(\w+)[\w ]* failed with exit code -?\d+", launcher)
    first = {"train": "envs", "eval": "envs"}.get(failed[1].lower(), failed[1].lower()) if failed else "-"
    texts = dict(sorted(texts.items(), key=lambda log: not log[0].startswith(first)))
    for beginning, retry, words in CLASSES:
        for name, text in texts.items():
            if line := next((line for line in text.splitlines() if re.search(words, line)), None):
                free = re.search(r"\(([\d.]+)/([\d.]+) GiB\)", line)
                if free and float(free[1]) > 0.9 * float(free[2]):  # nobody is there: it asks for too much
                    beginning, retry = "out of GPU memory", False
                shown = BEFORE.sub("", line.strip())[:300]
                return Failed(f"{beginning}: {name}: {shown}", retry)
    lines = [f"{name}: {decisive(text)}" for name, text in texts.items() if text.strip()]
    return Failed("; ".join([otherwise, failed[0], *lines[:1]] if failed else [otherwise, *lines[:3]]))


def decisive(text: str) -> str:
    """The last line of a log that shows an error of its own, else the last error, else the last line."""
    lines = [plain for line in text.splitlines() if (plain := BEFORE.sub("", line.strip()))]
    errors = [line for line in lines if ERROR.search(line)]
    own = [line for line in errors if not CONSEQUENCE.search(line)]
    return (own or errors or lines or ["nothing"])[-1][:300]


# With LoRA prime-rl hands on the adapter alone, which is added to the base model's weights here. Its file has a pair of
# matrices for each adapted layer, named as the layer is in the base model's files. peft would add them too, but expects
# other names, and loads the model through transformers, which has to know its type.

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def assemble(run: Run, reached: int) -> None:
    """Make out/model from the last complete broadcast and the base model's configuration and tokenizer.

    Raises Failed: there is no broadcast after step 0, or the adapter is for other layers than the base model has.
    """
    # STABLE is written last: a broadcast without it is incomplete.
    stable = [path.parent for path in run.folder.glob("broadcasts/step_*/STABLE")]
    step, broadcast = max(((int(path.name[5:]), path) for path in stable), default=(0, run.folder))
    if not step:
        raise Failed(f"left nothing to score: no step's weights were handed on; it came to step {reached}")
    model = Path(run.config["out"]) / "model"
    making = model.with_name(".model")
    making.mkdir()
    is_adapted = (broadcast / CONFIG).exists()
    for path in run.base.iterdir():
        is_index = ".index." in path.name  # of the base model's files, which adapted weights are written into again
        if path.suffix in (".json", ".txt", ".model", ".jinja", ".tiktoken") and (is_adapted or not is_index):
            shutil.copyfile(path, making / path.name)
    if is_adapted:
        merge(run.base, broadcast, making)
    else:
        for path in broadcast.glob("*.safetensors*"):  # moved: the engine refuses checkpoints with hard links
            path.rename(making / path.name)
    making.rename(model)


def merge(base: Path, adapter: Path, into: Path) -> None:
    """Write the base model's weights with an adapter added, file by file, each tensor in the type that it has.

    Raises Failed: the base model has no weights of a layer that is adapted.
    """
    from safetensors.torch import load_file, save_file  # which takes long to import

    said = json.loads((adapter / CONFIG).read_text())
    scale, pairs = said["lora_alpha"] / said["r"], load_file(adapter / WEIGHTS)
    left = {name.rpartition(".lora_")[0] for name in pairs}
    for path in sorted(base.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        for layer in {name.removesuffix(".weight") for name in tensors} & left:
            low, high = (pairs[f"{layer}.lora_{which}.weight"].float() for which in "AB")
            before = tensors[f"{layer}.weight"]
            tensors[f"{layer}.weight"] = (before.float() + scale * (high @ low)).to(before.dtype)
            left.discard(layer)
        save_file(tensors, into / path.name, metadata=metadata)
    if left:
        raise Failed(f"left nothing to score: the base model has no weights of {min(left)}, which the adapter is for")


def train(config: Config, progress: ProgressFile) -> None:
    """Train as config.json says, and leave out/model, nothing large besides, and no link, which the engine refuses."""
    run = Run(config)
    try:
        prepare(run)
        follow(run, progress)
        assemble(run, reached=progress.budget.step)
    finally:
        for name in ("run/rollouts", "run/broadcasts", "run/checkpoints", "converted"):
            shutil.rmtree(run.home / name, ignore_errors=True)
        for file in (run.questions, run.folder / "logs/latest"):
            file.unlink(missing_ok=True)


def check(config: Config, progress: ProgressFile) -> None:
    """Refuse what prime-rl would refuse; leaves no files."""
    with tempfile.TemporaryDirectory() as aside:
        run = Run({**config, "out": aside})
        if (run.bin / "rl").is_file():  # else the first trial says so
            ask_rl(run)


def prepare(run: Run) -> None:
    """Check what training needs, and let `rl` validate the files that it is to read."""
    if not (run.bin / "rl").is_file():
        raise Failed(f"did not start: there is no {run.bin / 'rl'}: set prime_rl, and let `readable` list it")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    questions = (run.data / "train.jsonl").read_text().rstrip("\n").split("\n")
    # prime-rl takes them in their order, and has no seed of its own.
    random.Random(run.config["seed"]).shuffle(questions)
    run.questions.write_text("\n".join(questions) + "\n")
    ask_rl(run)


def ask_rl(run: Run) -> None:
    """Write the files of prime-rl, and have it validate both with `rl --dry-run`."""
    run.train_file.write_text(run.train)
    run.engine_file.write_text(tomlkit.dumps(run.overlay()))
    if run.start("--dry-run", log="dry-run.log").wait():
        lines = (line.strip(" │╭╮╰╯─") for line in read(run.home / "dry-run.log").splitlines())
        said = "; ".join(filter(None, lines))[-400:]  # why it refused comes last, and a reason is not long
        raise Failed(f"refused: rl --dry-run of train.toml with the parameters: {said}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], train, check=check))
