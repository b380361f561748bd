"""Fetches GSM8K and the base model, and splits the questions: `python prepare.py FOLDER`.

FOLDER/settings.json says where from (`Settings`). Training has the dataset's train part. Its test part is the
judge's, cut once into questions to search, to confirm and to report with, in the order of their hashes. A question
of the train part that is in the test part too, but for case and spaces, is left out of training.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from making import (
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


@dataclass(frozen=True)
class Settings:
    """What settings.json may say; a dataset or a model is a name on the hub, or the absolute path of a folder."""

    dataset: str = "openai/gsm8k"
    dataset_revision: str = "e53f048856ff4f594e959d75785d2c2d37b678ee"
    model: str = "Qwen/Qwen2.5-0.5B-Instruct"
    model_revision: str = "7ae557604adf67be50417f59c2c2f167def9a775"
    search: int = 500
    """Questions of the test part that the search is judged by; `confirm` and the rest likewise."""
    confirm: int = 200


def gsm8k(rows: Iterable[dict[str, Any]], part: str) -> Iterator[Row]:
    """Questions with their answers as plain numbers, from rows of a question and a worked solution."""
    for index, row in enumerate(rows):
        if not (found := ANSWER.search(row["answer"])):
            raise CannotPrepare(f"row {index} of the {part} part has no `#### NUMBER` at its end")
        question = row["question"].strip()
        yield {"id": identity(question), "question": question, "answer": found[1].replace(",", "")}


def main(folder: Path) -> None:
    settings = settings_of(Settings, folder)
    place = Place("dataset", "dataset", settings.dataset, settings.dataset_revision)
    parts = {}
    for part in ("train", "test"):
        files = [f"main/{part}-00000-of-00001.parquet"]
        parts[part] = list(gsm8k(dataset_rows(place, files, f"{part}.jsonl"), part))
    judged = distinct(parts["test"])
    write(
        folder,
        train=distinct(parts["train"], without=judged),
        judge=split(judged, {"search": settings.search, "confirm": settings.confirm, "report": 0}),
    )
    base_model(Place("model", "model", settings.model, settings.model_revision), folder / "data" / "base")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except CannotPrepare as reason:
        sys.exit(f"gsm8k cannot be prepared: {reason}")
