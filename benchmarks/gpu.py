"""What training gains from an NVIDIA GPU, and whether a sandboxed trial can use it.

    python -m benchmarks.gpu [--steps 12] [--only grpo sandbox] [--models tiny half]
                             [--devices cpu cuda] [--json]

Every row is one program of ours on one device; without a GPU the rows of `cuda` are left out.

grpo        answers and tokens per second, drawn and learned from, after the first step: `tiny` is the base model of
            environments/arithmetic, `half` a random Qwen2 of the shape of Qwen2.5-0.5B with answers of 256 tokens
sandbox     `nightshift try` of arithmetic at each level of isolation

gpu_busy    the share of time in which a kernel ran, as NVML samples it, over what the row's speed is taken from
gpu_peak_gb of the whole GPU while the program ran, less what it held before
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import environments
from benchmarks.grpo import prepared, train
from benchmarks.tables import about, show
from tasks.store.workspace import trainer_files

Figures = dict[str, Any]
SAMPLING = 0.1
"""Seconds between two looks at the GPU."""
UNMOVED = 20
"""Steps after which a training without any reward is given up: a random model earns none (tasks/trainers/grpo.py)."""
HALF = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "tie_word_embeddings": True, "rope_theta": 1e6,
}  # fmt: skip
"""Of Qwen2.5-0.5B, by its config.json on the Hugging Face hub."""
VOCABULARY = 151_936
MAKE_HALF = """\
import json, sys
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
base, folder, shape, vocabulary = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
small = AutoTokenizer.from_pretrained(base)
table = json.loads(small.backend_tokenizer.to_str())
words = table["model"]["vocab"]
words |= {f"~{index}": index for index in range(len(words), vocabulary)}
made = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer.from_str(json.dumps(table)), pad_token=small.pad_token, unk_token=small.unk_token,
    eos_token=small.eos_token, padding_side="left", model_max_length=2048,
)
made.chat_template = small.chat_template
torch.manual_seed(0)
config = Qwen2Config(vocab_size=vocabulary, pad_token_id=made.pad_token_id, eos_token_id=made.eos_token_id,
                     bos_token_id=None, **shape)
Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
made.save_pretrained(folder)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="of each training of grpo, 2 to 19 (12)")
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), help="parts of the table (all)")
    parser.add_argument("--models", nargs="+", default=["tiny", "half"], choices=["tiny", "half"])
    parser.add_argument("--devices", nargs="+", default=["cpu", "cuda"], choices=["cpu", "cuda"])
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if not 2 <= options.steps < UNMOVED:
        parser.error(f"--steps must be from 2 to {UNMOVED - 1}, got {options.steps}")
    gpu = Gpu.first()
    devices = [device for device in options.devices if device == "cpu" or gpu]
    rows: list[Figures] = []
    models = [model for model in options.models if model == "tiny" or "cuda" in devices]
    with tempfile.TemporaryDirectory(prefix="nightshift-gpu-", dir=Path.home()) as folder:
        for part in options.only:
            for row in PARTS[part](Bench(Path(folder), gpu, devices, models, options.steps)):
                print(json.dumps({"part": part} | row), file=sys.stderr, flush=True)
                rows.append({"part": part} | row)
    title = about(gpu.name if gpu else "no GPU")
    if options.json:
        print(json.dumps({"about": title, "rows": rows}, indent=2))
        return
    named = ("part", "what", "device")
    lines = [
        (*map(row.get, named), ", ".join(f"{name} {value}" for name, value in row.items() if name not in named))
        for row in rows
    ]
    show((*named, "figures"), lines, title)


class Gpu:
    """The first GPU, by NVIDIA's management library."""

    def __init__(self, nvml: Any) -> None:
        self._nvml, self._handle = nvml, nvml.nvmlDeviceGetHandleByIndex(0)
        self.name = str(nvml.nvmlDeviceGetName(self._handle))

    @classmethod
    def first(cls) -> Gpu | None:
        """None without the package nvidia-ml-py, a driver or a GPU."""
        try:
            import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            return cls(pynvml)
        except pynvml.NVMLError:
            return None

    def read(self) -> tuple[float, int]:
        """The share of its last sampling period in which a kernel ran, and the bytes in use."""
        busy = self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100
        return busy, int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)


Samples = list[tuple[float, float, int]]
"""What a GPU did: time on the performance counter, share busy, bytes in use; empty on a CPU."""


def load(samples: Samples, begin: float, end: float) -> Figures:
    """`begin` and `end`: the part of the time whose load counts."""
    busy = [share for at, share, _ in samples if begin <= at <= end]
    if not busy:
        return {}
    peak = max(held for _, _, held in samples) - samples[0][2]
    return {"gpu_busy": round(sum(busy) / len(busy), 2), "gpu_peak_gb": round(peak / 1e9, 2)}


@dataclass(frozen=True)
class Bench:
    """Where and how long to measure."""

    folder: Path
    gpu: Gpu | None
    devices: Sequence[str]
    models: Sequence[str]
    steps: int

    @contextlib.contextmanager
    def watching(self, device: str) -> Iterator[Samples]:
        """Sample the GPU while a program runs on it."""
        samples: Samples = []
        over = threading.Event()

        def watch() -> None:
            while self.gpu and device == "cuda":
                samples.append((time.perf_counter(), *self.gpu.read()))
                if over.wait(SAMPLING):
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            over.set()
            thread.join()

    def base(self, model: str) -> Path:
        """The folder with questions and a base model; made once."""
        tiny, half = self.folder / "tiny" / "data", self.folder / "half"
        if not tiny.exists():
            tiny.parent.mkdir()
            prepared(environments.find("arithmetic") / "prepare.py", tiny.parent)
        if model == "half" and not half.exists():
            half.mkdir()
            shutil.copy(tiny / "train.jsonl", half)
            sizes = [json.dumps(HALF), str(VOCABULARY)]
            command = [sys.executable, "-c", MAKE_HALF, str(tiny / "base"), str(half / "base"), *sizes]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return tiny if model == "tiny" else half


def grpo(bench: Bench) -> Iterator[Figures]:
    defaults = environments.load(environments.find("arithmetic")).defaults
    program = {name: path.read_text() for path, name in trainer_files("grpo")}
    for model, device in product(bench.models, bench.devices):
        if (model, device) == ("half", "cpu"):  # it takes hours
            continue
        params = defaults | ({} if model == "tiny" else {"batch_size": 64, "max_completion_length": 256})
        config = {
            "params": params, "seed": 0, "budget_seconds": 3600, "budget_steps": bench.steps, "device": device,
            "data": str(bench.base(model)), "cores": 1,
        }  # fmt: skip
        place = bench.folder / "training"
        with bench.watching(device) as samples:
            began = time.perf_counter()
            done = train(program, config, place)
        first, last = done.marks[done.first][0], done.marks[max(done.marks)][0]
        answers = int(params["batch_size"]) * (max(done.marks) - done.first) / (last - first)
        yield {
            "what": model, "device": device, "answers_per_second": round(answers, 1),
            "tokens_per_second": round(answers * _length(place)), "first_step_s": round(first, 1),
            "memory_gb": round(done.peak_memory / 1e9, 2),
        } | load(samples, began + first, began + last)  # fmt: skip


def _length(place: Path) -> float:
    """Tokens of an answer, on average, as the training reported it."""
    lines = map(json.loads, (place / "out" / "progress.jsonl").read_text().splitlines())
    lengths = [line["metrics"]["length/mean"] for line in lines if "length/mean" in line.get("metrics", {})]
    return statistics.fmean(lengths)


def sandbox(bench: Bench) -> Iterator[Figures]:
    """One whole trial of GRPO at each level of isolation: its score, or why it has none."""
    given = ("--json", "--seed", "1", "--set", f"budget_steps={bench.steps}", "--set", "text.questions=50")
    home = os.environ | {"NIGHTSHIFT_HOME": str(bench.folder / "home")}
    for level in ("bwrap", "landlock"):
        for device in bench.devices:
            asked = ["try", "arithmetic", "--isolation", level, "--set", f"device={device}", *given]
            with bench.watching(device) as samples:
                began = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, "-m", "flows.cli", *asked], capture_output=True, text=True, env=home, check=False
                )
                ended = time.perf_counter()
            row = {"what": level, "device": device, "seconds": round(ended - began, 1)}
            try:
                found = json.loads(done.stdout)
                row |= {"score": found["score"], "error": found["error"]}
            except ValueError:
                row["error"] = (done.stdout + done.stderr)[-1500:]
            yield row | load(samples, began, ended)


PARTS = {"sandbox": sandbox, "grpo": grpo}


if __name__ == "__main__":
    main()
