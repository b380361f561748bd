"""Fetches GSM8K, MATH and the base model, and splits the questions: `python prepare.py FOLDER`.

FOLDER/settings.json says where from (`Settings`). Training has the train parts of both, in the order of their hashes
and so well mixed. Of each test part the judge has so many questions to search, to confirm and to report with, cut once
in that order. A question of a train part that is in a test part too, but for case and spaces, is left out of training.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from making import (
    SPLITS,
    CannotPrepare,
    Place,
    Row,
    base_model,
    dataset_rows,
    distinct,
    identity,
    settings_of,
    split,
    write,
)

ANSWER = re.compile(r"####\s*(-?[0-9][0-9,]*(?:\.[0-9]+)?)\s*$")
BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
)  # fmt: skip
"""Of MATH, a folder of the dataset each."""


@dataclass(frozen=True)
class Settings:
    """What settings.json may say; a dataset or a model is a name on the hub, or the absolute path of a folder."""

    gsm8k: str = "openai/gsm8k"
    gsm8k_revision: str = "e53f048856ff4f594e959d75785d2c2d37b678ee"
    math: str = "EleutherAI/hendrycks_math"
    math_revision: str = "21a5633873b6a120296cce3e2df9d5550074f4a3"
    model: str = "Qwen/Qwen2.5-0.5B-Instruct"
    model_revision: str = "7ae557604adf67be50417f59c2c2f167def9a775"
    search: int = 500
    """Questions of each test part that the search is judged by; `confirm` and `report` likewise."""
    confirm: int = 200
    report: int = 619
    """What GSM8K has left; so many of MATH too, that neither is known better than the other."""


def gsm8k(rows: Iterable[dict[str, Any]], part: str) -> Iterator[Row]:
    """Questions with their answers as plain numbers, from rows of a question and a worked solution."""
    for index, row in enumerate(rows):
        if not (found := ANSWER.search(row["answer"])):
            raise CannotPrepare(f"row {index} of the {part} part of GSM8K has no `#### NUMBER` at its end")
        yield asked(row["question"], found[1].replace(",", ""), "gsm8k")


def math(rows: Iterable[dict[str, Any]], part: str) -> Iterator[Row]:
    """Questions with what their worked solution has boxed last, as LaTeX."""
    for index, row in enumerate(rows):
        if not (answer := last_box(row["solution"])):
            raise CannotPrepare(f"row {index} of the {part} part of MATH has no \\boxed{{}} in its solution")
        yield asked(row["problem"], answer, "math")


def asked(question: str, answer: str, source: str) -> Row:
    question = question.strip()
    return {"id": identity(question), "question": question, "answer": answer, "source": source}


def last_box(solution: str) -> str | None:
    """What the last box of a solution holds; a few have one sign and no braces, \\boxed 2."""
    begins = [found.end() for found in BOX.finditer(solution)]
    if not begins:
        bare = re.findall(r"\\boxed\s+([^\s$]+)", solution)
        return bare[-1] if bare else None
    depth = 1
    for at in range(begins[-1], len(solution)):
        depth += {"{": 1, "}": -1}.get(solution[at], 0)
        if depth == 0:
            return solution[begins[-1] : at].strip()
    return None


def main(folder: Path) -> None:
    settings = settings_of(Settings, folder)
    first = Place("dataset", "gsm8k", settings.gsm8k, settings.gsm8k_revision)
    second = Place("dataset", "math", settings.math, settings.math_revision)
    parts: dict[str, list[list[Row]]] = {}
    for part in ("train", "test"):
        names = [f"{subject}/{part}-00000-of-00001.parquet" for subject in SUBJECTS]
        words = dataset_rows(first, [f"main/{part}-00000-of-00001.parquet"], f"{part}.jsonl")
        latex = dataset_rows(second, names, f"{part}.jsonl")
        parts[part] = [list(gsm8k(words, part)), list(math(latex, part))]
    words, latex = parts["test"]
    judged = [*words, *latex]
    sizes = {name: getattr(settings, name) for name in SPLITS}
    sets = [split(distinct(words), sizes), split(distinct(latex, without=words), sizes)]
    write(
        folder,
        train=distinct((row for rows in parts["train"] for row in rows), without=judged),
        judge={name: distinct(row for one in sets for row in one[name]) for name in SPLITS},
    )
    base_model(Place("model", "model", settings.model, settings.model_revision), folder / "data" / "base")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except CannotPrepare as reason:
        sys.exit(f"gsm8k_math cannot be prepared: {reason}")
