"""Fetches GSM8K, with MATH beside it where asked, and the base model: `python prepare.py FOLDER`.

FOLDER/settings.json says where from (`Settings`). Training has the train parts, mixed by the order of their hashes.
Each test part is the judge's, cut once in that order into questions to search, to confirm and to report with.
A question of a train part that is also in a test part, but for case and spaces, is left out of training.
"""

from __future__ import annotations

import re
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
    run,
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
    """The keys of settings.json. A dataset or a model is a name on the hub, or the absolute path of a folder."""

    dataset: str = "openai/gsm8k"
    dataset_revision: str = "e53f048856ff4f594e959d75785d2c2d37b678ee"
    math: str = ""
    """The MATH dataset; empty: GSM8K alone, whose questions then name no source."""
    math_revision: str = "21a5633873b6a120296cce3e2df9d5550074f4a3"
    model: str = "Qwen/Qwen2.5-0.5B-Instruct"
    model_revision: str = "7ae557604adf67be50417f59c2c2f167def9a775"
    search: int = 500
    """Questions of each test part that the search is judged by; `confirm` and `report` likewise."""
    confirm: int = 200
    curve: int = 128
    """Training questions, a tenth at most, that are not trained on but asked on the way; 0: none."""
    report: int = 0
    """0: what GSM8K has left, and as many of MATH, so that neither is known better than the other."""


def gsm8k(rows: Iterable[dict[str, Any]], part: str) -> Iterator[Row]:
    """Questions with their answers as plain numbers, from rows of a question and a worked solution."""
    for index, row in enumerate(rows):
        if not (answer := ANSWER.search(row["answer"])):
            raise CannotPrepare(f"row {index} of the {part} part of GSM8K has no `#### NUMBER` at its end")
        yield question(row["question"], answer[1].replace(",", ""))


def math(rows: Iterable[dict[str, Any]], part: str) -> Iterator[Row]:
    """Questions with the last box of their worked solutions, as LaTeX."""
    for index, row in enumerate(rows):
        if not (answer := last_box(row["solution"])):
            raise CannotPrepare(f"row {index} of the {part} part of MATH has no \\boxed{{}} in its solution")
        yield question(row["problem"], answer)


def question(text: str, answer: str) -> Row:
    text = text.strip()
    return {"id": identity(text), "question": text, "answer": answer}


def last_box(solution: str) -> str | None:
    """The content of a solution's last box; a few have one character and no braces, \\boxed 2."""
    begins = [box.end() for box in BOX.finditer(solution)]
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
    sources = {"gsm8k": Place("dataset", "dataset", settings.dataset, settings.dataset_revision)}
    if settings.math:
        sources["math"] = Place("dataset", "math", settings.math, settings.math_revision)
    parts: dict[str, list[list[Row]]] = {"train": [], "test": []}
    for source, place in sources.items():
        folders, rows_of = (("main",), gsm8k) if source == "gsm8k" else (SUBJECTS, math)
        for part, held in parts.items():
            files = [f"{name}/{part}-00000-of-00001.parquet" for name in folders]
            rows = rows_of(dataset_rows(place, files, f"{part}.jsonl"), part)
            held.append([row | ({"source": source} if settings.math else {}) for row in rows])
    sizes = {name: getattr(settings, name) for name in SPLITS}
    judged: list[Row] = []
    judge: dict[str, list[Row]] = {name: [] for name in SPLITS}
    for test in parts["test"]:
        cut = split(distinct(test, without=judged), sizes)
        sizes = {name: len(rows) for name, rows in cut.items()}
        judge = {name: distinct([*judge[name], *cut[name]]) for name in SPLITS}
        judged += test
    train = distinct((row for part in parts["train"] for row in part), without=judged)
    write(folder, train=train, judge=judge, curve=settings.curve)
    base_model(Place("model", "model", settings.model, settings.model_revision), folder / "data" / "base")


if __name__ == "__main__":
    run("gsm8k", main)
