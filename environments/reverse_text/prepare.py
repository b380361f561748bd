"""Makes texts to reverse, and fetches the base model: `python prepare.py FOLDER`.

FOLDER/settings.json says how (`Settings`). A text is a few made-up words, "tano kelumi bo", drawn from the seed alone.
All differ. In the order of their hashes the first are the judge's, to search, to confirm and to report with.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from making import Place, Row, base_model, distinct, first, identity, run, settings_of, split, write

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True)
class Settings:
    """The keys of settings.json. A model is a name on the hub, or the absolute path of a folder."""

    model: str = "PrimeIntellect/Qwen3-0.6B-Reverse-Text-SFT"
    model_revision: str = "c97a910849ec6aa962add3dc253a0817d61c0210"
    train: int = 4000
    """Texts to train on; `search`, `confirm` and `report` are the judge's."""
    search: int = 500
    confirm: int = 200
    report: int = 600
    curve: int = 128
    """Of the texts to train on, a tenth at most, those that are asked on the way instead; 0: none."""
    words: int = 6
    """Of the longest text; the shortest has two."""
    seed: int = 0


def texts(settings: Settings, many: int) -> Iterator[Row]:
    """Two words or more, of one to three syllables each."""
    draw = random.Random(settings.seed)
    for _ in range(many):
        question = " ".join(
            "".join(draw.choice(CONSONANTS) + draw.choice(VOWELS) for _ in range(draw.randint(1, 3)))
            for _ in range(draw.randint(2, settings.words))
        )
        yield {"id": identity(question), "question": question, "answer": question[::-1]}


def main(folder: Path) -> None:
    settings = settings_of(Settings, folder)
    judged = settings.search + settings.confirm + settings.report
    wanted = judged + settings.train
    rows = distinct(first(texts(settings, 20 * wanted), wanted))
    write(folder, train=rows[judged:], judge=split(rows[:judged], vars(settings)), curve=settings.curve)
    base_model(Place("model", settings.model, settings.model_revision), folder / "data" / "base")


if __name__ == "__main__":
    run("reverse_text", main)
