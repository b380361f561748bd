"""What the GRPO trainer costs compared with plain TRL: same model, questions, settings and seed.

    python -m benchmarks.grpo [--rounds 3] [--steps 40] [--json]

`ours` is tasks/trainers/grpo.py as a trial runs it; `bare` is a short program that gives TRL's GRPOTrainer the same,
with the optimiser, schedule and log that it has by itself, and saves the model. Both train the base of
environments/arithmetic, which its recipe makes first, with a short warm-up. A round runs each once, in turns first and
last; a ratio is taken within a round.

rollouts_per_cpu_second   answers drawn and learned from, per second of a core, from the end of the first step on
ratio                     of that to `bare`
first_step_s              from the start of the process to the end of the first step, on the clock
peak_memory_mb            of the process

The clock depends on what else the machine does; processor time hardly does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import environments
from benchmarks.tables import about, show, spread
from tasks.store.workspace import trainer_files

WARM_UP = 100
"""Optimiser steps: enough for answers of an ordinary length."""
OURS, BARE = "ours", "bare"
Figures = dict[str, Any]
PROGRAM = """\
import json, os, pathlib, re
os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1"}
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

torch.set_num_threads(1)
config = json.loads(pathlib.Path("config.json").read_text())
params, data, out = config["params"], pathlib.Path(config["data"]), pathlib.Path(config["out"])
progress = (out / "progress.jsonl").open("w", buffering=1)


def reward(completions, answer, **_):
    numbers = [re.findall("[0-9]+", completion[0]["content"]) for completion in completions]
    return [float(bool(found) and int(found[-1]) == int(right)) for found, right in zip(numbers, answer)]


class Marks(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        progress.write(json.dumps({"step": state.global_step}) + "\\n")


rows = [json.loads(line) for line in (data / "train.jsonl").open()]
asked = [{"prompt": [{"role": "user", "content": row["question"]}], "answer": row["answer"]} for row in rows]
words = AutoTokenizer.from_pretrained(data / "base", padding_side="left")
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(data / "base"), reward_funcs=reward, processing_class=words,
    train_dataset=Dataset.from_list(asked), callbacks=[Marks()],
    args=GRPOConfig(
        output_dir=str(out), report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True, bf16=False,
        gradient_checkpointing=False, seed=config["seed"], max_steps=config["budget_steps"], warmup_steps=5,
        learning_rate=params["learning_rate"], adam_beta2=0.99, per_device_train_batch_size=params["batch_size"],
        num_generations=params["group_size"], max_completion_length=params["max_completion_length"],
    ),
)
progress.write('{"ready": true}\\n')
trainer.train()
trainer.save_model(str(out / "model"))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="What our GRPO program costs beside TRL run bare.")
    parser.add_argument("--rounds", type=int, default=3, help="trainings each way (3)")
    parser.add_argument("--steps", type=int, default=40, help="steps of each (40)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    figures = measure(options.rounds, options.steps)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        rows = [(kind, *map(spread, by.values())) for kind, by in figures["rows"].items()]
        show(("median (least to most)", OURS, BARE), rows, figures["about"])


def measure(rounds: int, steps: int) -> Figures:
    """Each figure by program, round by round."""
    settings = environments.load(environments.find("arithmetic"))
    ours = {name: path.read_text() for path, name in trainer_files("grpo")}
    programs = {OURS: ours, BARE: {"train.py": PROGRAM}}
    taken: list[dict[str, Training]] = []
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as folder:
        data = prepared(settings.folder / "prepare.py", Path(folder))
        for turn in range(rounds):
            order = (OURS, BARE) if turn % 2 else (BARE, OURS)
            config = {
                "params": settings.defaults, "seed": turn, "budget_seconds": 3600, "budget_steps": steps,
                "device": "cpu", "data": str(data),
            }  # fmt: skip
            taken.append({name: train(programs[name], config, Path(folder) / name) for name in order})
    batch = int(settings.defaults["batch_size"])
    return {"about": about(f"{steps} steps of {batch} answers, {rounds} rounds"), "rows": summary(taken, batch)}


def prepared(program: Path, folder: Path) -> Path:
    """What training reads, as the recipe makes it."""
    recipe = environments.load(program.parent, {"prepare.settings.steps": WARM_UP}).prepare
    assert recipe is not None
    (folder / "settings.json").write_text(json.dumps(recipe.settings))
    helpers = program.parent.parent / "helpers"
    environment = variables() | {"PYTHONPATH": str(helpers)}
    subprocess.run([sys.executable, str(program), str(folder)], check=True, stdout=subprocess.PIPE, env=environment)
    return folder / "data"


def variables() -> dict[str, str]:
    """One thread, as the engine gives every program."""
    return os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Training:
    """One training, as seen from outside: at each step its seconds since the start, and those of the processor."""

    marks: dict[int, tuple[float, float]]
    """By steps done, those that were reported; 0 is ready."""
    peak_memory: int
    """In bytes."""

    def span(self) -> tuple[int, int]:
        """The first and last step that were reported: the trainer does so five times a second at most."""
        return min(filter(None, self.marks)), max(self.marks)


def train(program: dict[str, str], config: Figures, place: Path) -> Training:
    """Run a program to its end. Raises RuntimeError: it failed."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "out").mkdir(parents=True)
    for name, text in program.items():
        (place / name).write_text(text)
    (place / "config.json").write_text(json.dumps(config | {"out": str(place / "out")}))
    marks: dict[int, tuple[float, float]] = {}
    began, ended = time.perf_counter(), 0
    with (place / "log").open("w") as log:
        running = psutil.Popen([sys.executable, "train.py"], cwd=place, stdout=log, stderr=log, env=variables())
        while not ended:
            for step in steps_done(place / "out" / "progress.jsonl"):
                if step not in marks:
                    used = running.cpu_times()
                    marks[step] = (time.perf_counter() - began, used.user + used.system)
            time.sleep(0.02)
            ended, status, usage = os.wait4(running.pid, os.WNOHANG)
    if status or len(marks) < 3 or not {0, config["budget_steps"]} <= marks.keys():
        raise RuntimeError(f"a training failed: {(place / 'log').read_text()[-2000:]}")
    return Training(marks, usage.ru_maxrss * 1024)


def steps_done(progress: Path) -> set[int]:
    """What a program has reported so far; 0 is ready."""
    text = progress.read_text() if progress.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return {line.get("step", 0) for line in lines}


def summary(rounds: Sequence[dict[str, Training]], batch: int) -> Figures:
    """Rows of figures, each by program; `batch` counts the answers of a step."""

    def speed(one: Training) -> float:
        """Without the first step, in which the libraries load what they had put off."""
        first, last = one.span()
        return batch * (last - first) / (one.marks[last][1] - one.marks[first][1])

    of: dict[str, Callable[[Training], float]] = {
        "rollouts_per_cpu_second": speed,
        "first_step_s": lambda one: one.marks[one.span()[0]][0],
        "peak_memory_mb": lambda one: one.peak_memory / 2**20,
    }
    rows = {kind: {name: [figure(one[name]) for one in rounds] for name in (OURS, BARE)} for kind, figure in of.items()}
    rows["ratio"] = {OURS: [speed(one[OURS]) / speed(one[BARE]) for one in rounds]}
    return rows


if __name__ == "__main__":
    main()
