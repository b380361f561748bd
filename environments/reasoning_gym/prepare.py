"""Makes the questions of a data set of reasoning-gym, and fetches the base model: `python prepare.py FOLDER`.

FOLDER/settings.json says which. Questions are drawn from the seed alone, and all differ. The judge's
come first, so that more for training leave them as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import reasoning_gym
from making import CannotPrepare, Row, base_model, first, identity, run, settings_of, split, write


def questions(settings: SimpleNamespace, many: int) -> Iterator[Row]:
    """Questions with all that the scorer needs.

    Raises CannotPrepare: there is no such data set, or its scorer does not take its own answer from a file.
    """
    try:
        drawn = reasoning_gym.create_dataset(settings.dataset, size=many, seed=settings.seed, **settings.options)
    except (ValueError, TypeError, AssertionError) as wrong:
        raise CannotPrepare(f"prepare.settings.dataset = {settings.dataset!r}: {wrong}") from wrong
    score = reasoning_gym.get_score_answer_fn(settings.dataset)
    for entry in drawn:
        question = "\n".join(filter(None, (entry["question"].strip(), settings.instruction)))
        row = {"id": identity(question), "question": question, "answer": entry["answer"], "metadata": entry["metadata"]}
        row = json.loads(json.dumps(row, default=str))
        if row["answer"] is None or score(row["answer"], row) < 1:
            raise CannotPrepare(
                f"prepare.settings.dataset = {settings.dataset!r}: its scorer needs more than a file holds"
            )
        yield row | {"dataset": settings.dataset}


def main(folder: Path) -> None:
    settings = settings_of(folder)
    judged = settings.search + settings.confirm + settings.report
    wanted = judged + settings.train
    rows = first(questions(settings, 10 * wanted), wanted)  # small data sets repeat themselves
    write(folder, train=rows[judged:], judge=split(rows[:judged], vars(settings)))
    base_model(settings.model, settings.model_revision, folder / "data" / "base")


if __name__ == "__main__":
    run("reasoning_gym", main)
