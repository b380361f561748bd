"""Makes the questions of a data set of reasoning-gym, and fetches the base model: `python prepare.py FOLDER`.

FOLDER/settings.json says which (`Settings`). Questions are drawn from the seed alone, and all differ. The judge's
come first, so that more for training leave them as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from making import SPLITS, CannotPrepare, Place, Row, base_model, identity, run, settings_of, write

try:
    import reasoning_gym
except ModuleNotFoundError as missing:
    sys.exit(f"reasoning_gym cannot be prepared: {missing}: pip install 'nightshift-rl[reasoning]'")

TRIES = 10
"""Questions that are drawn for one that is wanted: small data sets repeat themselves."""


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


def questions(settings: Settings) -> Iterator[Row]:
    """Distinct questions with all that the scorer needs.

    Raises CannotPrepare: there is no such data set, or its scorer does not take its own answer from a file.
    """
    wanted = settings.train + settings.search + settings.confirm + settings.report
    try:
        drawn = reasoning_gym.create_dataset(
            settings.dataset, size=TRIES * wanted, seed=settings.seed, **settings.options
        )
    except (ValueError, TypeError, AssertionError) as wrong:
        raise CannotPrepare(f"prepare.settings.dataset = {settings.dataset!r}: {wrong}") from wrong
    score, seen = reasoning_gym.get_score_answer_fn(settings.dataset), set()
    for entry in drawn:
        question = "\n".join(filter(None, (entry["question"].strip(), settings.instruction)))
        if (name := identity(question)) in seen:
            continue
        seen.add(name)
        row = {"id": name, "question": question, "answer": entry["answer"], "metadata": entry["metadata"]}
        row = json.loads(json.dumps(row, default=str))
        if row["answer"] is None or score(row["answer"], row) < 1:
            raise CannotPrepare(
                f"prepare.settings.dataset = {settings.dataset!r}: its scorer needs more than a file holds"
            )
        yield row | {"dataset": settings.dataset}
        if len(seen) == wanted:
            return
    raise CannotPrepare(
        f"{settings.dataset} with {settings.options} has {len(seen)} different questions, and {wanted} are wanted: "
        "set prepare.settings.train, .search, .confirm or .report lower"
    )


def main(folder: Path) -> None:
    settings = settings_of(Settings, folder)
    rows, judge = list(questions(settings)), {}
    for name in SPLITS:
        size = getattr(settings, name)
        judge[name], rows = rows[:size], rows[size:]
    write(folder, train=rows, judge=judge)
    base_model(Place("model", "model", settings.model, settings.model_revision), folder / "data" / "base")


if __name__ == "__main__":
    run("reasoning_gym", main)
