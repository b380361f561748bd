"""What the text judge's tests share: questions, a taskset that scores them, generators, and a stand-in for vLLM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from environments.judges import Exam
from environments.judges.text import GENERATOR

TASKSET = """\
def reward(question, completion, answer):
    return float(completion == answer)
"""

GENERATOR_OF = """\
import json, sys

def hear():
    return json.loads(sys.stdin.readline())

def say(told):
    sys.stdout.write(json.dumps(told) + "\\n")
    sys.stdout.flush()

def text(said, cut=False):
    return {"text": said, "truncated": cut}

def right(prompt):
    return str(eval(prompt[-1]["content"]))

how = hear()
"""
"""What a scripted generator begins with; a body follows it."""

RIGHT = """
say({"ready": True})
request = hear()
for index, prompt in reversed(list(enumerate(request["prompts"]))):
    texts = [text(right(prompt)) for _ in range(request["samples"])]
    say({"index": index, "completions": texts, "tokens": 3 * len(texts)})
"""
"""Knows every answer, and gives the last one first."""

VLLM = """\
import os, subprocess, sys
from types import SimpleNamespace

assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"

class SamplingParams(SimpleNamespace):
    pass

class LLM:
    def __init__(self, model, tokenizer, load_format, generation_config, trust_remote_code, mode=""):
        assert (load_format, generation_config, trust_remote_code) == ("safetensors", "vllm", False)
        assert os.path.isfile(os.path.join(model, "config.json"))
        if mode == "fails":
            raise ValueError("Free memory on device (3.1/79.2 GiB) on startup is less than desired")
        if mode == "orphan":
            subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(600)"], start_new_session=True)

    def chat(self, prompts, sampling, use_tqdm):
        assert all(how.stop_token_ids == [2, 5] for how in sampling)
        outputs = []
        for prompt, how in zip(prompts, sampling, strict=True):
            said = str(eval(prompt[-1]["content"]))
            one = SimpleNamespace(text=said, token_ids=[0] * min(2, how.max_tokens), finish_reason="stop")
            outputs.append(SimpleNamespace(outputs=[one] * how.n))
        return outputs
"""
"""The little of vLLM that the generator calls."""


def questions(many: int) -> list[dict[str, str]]:
    """Sums."""
    return [{"id": f"{at:016x}", "question": f"{at}+1", "answer": str(at + 1)} for at in range(many)]


def exam(folder: Path, rows: Iterable[dict[str, Any]], seed: int = 7, **more: Any) -> Exam:
    """A look at these questions, with the taskset beside them."""
    (folder / "taskset.py").write_text(TASKSET)
    pool = folder / "prepared" / "judge" / "search.jsonl"
    pool.parent.mkdir(parents=True, exist_ok=True)
    (folder / "prepared" / "data").mkdir(exist_ok=True)
    pool.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Exam(seed, prepared=folder / "prepared", folder=folder, **more)


def stand_in(folder: Path) -> Path:
    """A command `vllm`, beside a Python that has the module above."""
    own = folder / "bin"
    own.mkdir(parents=True, exist_ok=True)
    (own / "vllm.py").write_text(VLLM)
    (own / "run.py").write_text(
        "import runpy, sys\nsys.argv = [word for word in sys.argv[1:] if word not in ('-I', '-B')]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    for name in ("vllm", "python"):
        (own / name).write_text(f'#!/bin/sh\nexec {sys.executable} -B {own}/run.py "$@"\n')
        (own / name).chmod(0o755)
    return own / "vllm"


def hollow_model(folder: Path) -> Path:
    """What passes for a model where nobody loads it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"eos_token_id": 2}')
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 5], "top_k": 1}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def generate(
    backend: str, model: object, asked: dict[str, Any], python: str | Path = sys.executable, **how: Any
) -> tuple[list[dict[str, Any]], str]:
    """What the generator says to a request, and what it prints besides."""
    lines = [{"batch": 64, "concurrency": 8, "retries": 2, "request_seconds": 20.0} | how, asked]
    done = subprocess.run(
        [str(python), "-I", "-B", str(GENERATOR), backend, str(model), "cpu"],
        input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def request(*prompts: str, **more: Any) -> dict[str, Any]:
    asked = [[{"role": "user", "content": prompt}] for prompt in prompts]
    settings = {"samples": 2, "temperature": 1.0, "max_tokens": 8, "seed": 1}
    return {"prompts": asked, **settings, **more}
