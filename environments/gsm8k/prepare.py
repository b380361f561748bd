"""Fetches GSM8K and the base model: `python prepare.py FOLDER`.

FOLDER/settings.json says where from (`Settings`). The test part is the judge's, cut once in the order of hashes into
questions to search, to confirm and to report with. A question of the train part that is also in the test part, but for
case and spaces, is left out of training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from making import CannotPrepare, Place, base_model, dataset_rows, distinct, identity, run, settings_of, split, write

ANSWER = re.compile(r"####\s*(-?[0-9][0-9,]*(?:\.[0-9]+)?)\s*$")


@dataclass(frozen=True)
class Settings:
    """The keys of settings.json. A dataset or a model is a name on the hub, or the absolute path of a folder."""

    dataset: str = "openai/gsm8k"
    dataset_revision: str = "e53f048856ff4f594e959d75785d2c2d37b678ee"
    model: str = "Qwen/Qwen2.5-0.5B-Instruct"
    model_revision: str = "7ae557604adf67be50417f59c2c2f167def9a775"
    search: int = 500
    """Questions of the test part that the search is judged by; `confirm` and `report` likewise."""
    confirm: int = 200
    curve: int = 128
    """Training questions, a tenth at most, that are not trained on but asked on the way; 0: none."""
    report: int = 0
    """0: what is left."""


def questions(rows: Iterable[dict[str, Any]], part: str) -> Iterator[dict[str, str]]:
    """Questions with their answers as plain numbers, from rows of a question and a worked solution."""
    for index, row in enumerate(rows):
        if not (answer := ANSWER.search(row["answer"])):
            raise CannotPrepare(f"row {index} of the {part} part of GSM8K has no `#### NUMBER` at its end")
        question = row["question"].strip()
        yield {"id": identity(question), "question": question, "answer": answer[1].replace(",", "")}


def main(folder: Path) -> None:
    settings = settings_of(Settings, folder)
    place = Place("dataset", settings.dataset, settings.dataset_revision)
    test, train = (
        list(questions(dataset_rows(place, [f"main/{part}-00000-of-00001.parquet"], f"{part}.jsonl"), part))
        for part in ("test", "train")
    )
    judge = split(distinct(test), vars(settings))
    write(folder, train=distinct(train, without=test), judge=judge, curve=settings.curve)
    base_model(Place("model", settings.model, settings.model_revision), folder / "data" / "base")


if __name__ == "__main__":
    run("gsm8k", main)
