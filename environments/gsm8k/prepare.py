"""Fetches GSM8K and the base model: `python prepare.py FOLDER`.

FOLDER/settings.json says where from. The test part is the judge's, cut once in the order of hashes into
questions to search, to confirm and to report with. A question of the train part that is also in the test part, but for
case and spaces, is left out of training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from making import CannotPrepare, base_model, dataset_rows, distinct, identity, run, settings_of, split, write

ANSWER = re.compile(r"####\s*(-?[0-9][0-9,]*(?:\.[0-9]+)?)\s*$")


def questions(rows: Iterable[dict[str, Any]], part: str) -> Iterator[dict[str, str]]:
    """Questions with their answers as plain numbers, from rows of a question and a worked solution."""
    for index, row in enumerate(rows):
        if not (answer := ANSWER.search(row["answer"])):
            raise CannotPrepare(f"row {index} of the {part} part of GSM8K has no `#### NUMBER` at its end")
        question = row["question"].strip()
        yield {"id": identity(question), "question": question, "answer": answer[1].replace(",", "")}


def main(folder: Path) -> None:
    settings = settings_of(folder)
    place = settings.dataset, settings.dataset_revision
    test, train = (
        list(questions(dataset_rows(*place, [f"main/{part}-00000-of-00001.parquet"], f"{part}.jsonl"), part))
        for part in ("test", "train")
    )
    judge = split(distinct(test), vars(settings))
    write(folder, train=distinct(train, without=test), judge=judge, curve=settings.curve)
    base_model(settings.model, settings.model_revision, folder / "data" / "base")


if __name__ == "__main__":
    run("gsm8k", main)
