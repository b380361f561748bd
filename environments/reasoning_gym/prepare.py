"""Makes the questions of a data set of reasoning-gym, and fetches the base model: `python prepare.py FOLDER`.

FOLDER/settings.json says which (`Settings`). Questions are drawn from the seed alone, and all differ. The judge's
come first, so that more for training leave them as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import reasoning_gym
from making import CannotPrepare, Place, Row, base_model, first, identity, run, settings_of, split, write


@dataclass(frozen=True)
class Settings:
    """The keys of settings.json. A model is a name on the hub, or the absolute path of a folder."""

    dataset: str = "chain_sum"
    """One of reasoning-gym's."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the data set: its difficulty."""
    instruction: str = ""
    """What follows each question."""
    model: str = "HuggingFaceTB/SmolLM2-135M-Instruct"
    model_revision: str = "main"
    train: int = 2000
    search: int = 300
    confirm: int = 200
    report: int = 600
    seed: int = 0


def questions(settings: Settings, many: int) -> Iterator[Row]:
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
    settings = settings_of(Settings, folder)
    judged = settings.search + settings.confirm + settings.report
    wanted = judged + settings.train
    rows = first(questions(settings, 10 * wanted), wanted)  # small data sets repeat themselves
    write(folder, train=rows[judged:], judge=split(rows[:judged], vars(settings)))
    base_model(Place("model", settings.model, settings.model_revision), folder / "data" / "base")


if __name__ == "__main__":
    run("reasoning_gym", main)
