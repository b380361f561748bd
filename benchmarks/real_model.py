"""A real language model as it comes: greedy pass@1 on GSM8K and data sets of reasoning-gym; and a night on two cores.

    python -m benchmarks.real_model MODEL [--gsm8k FOLDER] [--datasets chain_sum gcd ...] [--questions 200]
    python -m benchmarks.real_model MODEL --night HOME [--seed 1]

MODEL is a folder with a Hugging Face model. Questions, generator and tasksets are those of gsm8k_one_gpu and
reasoning_gym. The night is that of environments/reasoning_gym/two_cores.toml, and goes on when called again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import environments
from benchmarks.campaigns import surroundings
from benchmarks.tables import about, show
from environments.judges._taskset import Taskset
from environments.judges.text import GENERATOR
from tasks import preparing

DATASETS: dict[str, dict[str, int]] = {
    "chain_sum": {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1},
    "products": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
    "gcd": {"max_value": 50},
    "letter_counting": {"min_words": 2, "max_words": 4},
    "leg_counting": {"min_animals": 1, "max_animals": 2, "max_instances": 9},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a folder with a Hugging Face model")
    parser.add_argument("--gsm8k", type=Path, help="a folder with train.jsonl and test.jsonl; without it, not asked")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), help=f"reasoning-gym's ({' '.join(DATASETS)})")
    parser.add_argument("--questions", type=int, default=200, help="to each (200)")
    parser.add_argument("--max-tokens", type=int, default=256, help="of the longest answer (256)")
    parser.add_argument("--night", type=Path, metavar="HOME", help="a campaign in this home instead")
    parser.add_argument("--seed", type=int, default=1, help="of the campaign (1)")
    options = parser.parse_args()
    if options.night:
        night(options.model.absolute(), options.night, options.seed)
        return
    rows = [asked(name, settings, options) for name, settings in problems(options.gsm8k, options.datasets)]
    show(tuple(rows[0]), [tuple(row.values()) for row in rows], about(options.model.name))


def night(model: Path, home: Path, seed: int) -> None:
    """Become the command that runs or resumes the campaign."""
    spec = str(environments.find("reasoning_gym") / "two_cores.toml")
    given = ["--name", f"{model.name}-{seed}", "--seed", str(seed), "--set", f"prepare.settings.model={model}"]
    os.execve(sys.executable, [sys.executable, "-m", "flows.cli", "run", spec, *given, "--trust"], surroundings(home))


def problems(gsm8k: Path | None, datasets: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The environments, with the settings of their recipes."""
    if gsm8k:
        yield "gsm8k_one_gpu", {"dataset": str(gsm8k.absolute())}
    for name in datasets:
        yield (
            "reasoning_gym",
            {"dataset": name, "options": DATASETS.get(name, {}), "train": 1, "confirm": 1, "report": 1},
        )


def asked(name: str, settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one problem."""
    own = settings | {"model": str(options.model.absolute()), "search": options.questions}
    environment = environments.named(name, {f"prepare.settings.{key}": value for key, value in own.items()})
    taskset = environment.folder / str(environment.judge.model_dump()["taskset"])
    with tempfile.TemporaryDirectory(prefix="nightshift-real-") as home:
        prepared = preparing.prepare(environment, Path(home), lambda line: print(line, file=sys.stderr))
        pool = prepared / "judge" / "search.jsonl"
        ids = [json.loads(line)["id"] for line in pool.read_text("utf-8").removesuffix("\n").split("\n")]
        with Taskset(taskset, pool, ids, 60.0, time.monotonic() + 86_400) as questions:
            prompts = questions.prompts(range(len(ids)))
            drawn = {"samples": 1, "seed": 0, "temperature": 0.0, "max_tokens": options.max_tokens}
            began = time.perf_counter()
            answers = completed(options.model.absolute(), {"prompts": prompts} | drawn)
            seconds = time.perf_counter() - began
            rewards = [questions.reward(answer["index"], answer["completions"][0]["text"]) for answer in answers]
    tokens, many = sum(answer["tokens"] for answer in answers), len(answers)
    return {
        "problem": settings.get("dataset") if name == "reasoning_gym" else name, "questions": many,
        "pass@1": round(statistics.fmean(rewards), 4), "se": round(statistics.pstdev(rewards) / math.sqrt(many), 4),
        "tokens": round(tokens / many, 1), "tokens_per_second": round(tokens / seconds, 1),
        "truncated": round(sum(answer["completions"][0]["truncated"] for answer in answers) / many, 3),
    }  # fmt: skip


def completed(model: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    """The generator's replies to one request."""
    told = json.dumps(request | {"batch": 64}) + "\n"
    command: list[str | Path] = [sys.executable, "-I", "-B", GENERATOR, "transformers", model, "auto"]
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=False)
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode:
        sys.exit(f"{model}: {replies[-1].get('failed') if replies else done.stderr[-1000:]}")
    return [reply for reply in replies if "index" in reply]


if __name__ == "__main__":
    main()
