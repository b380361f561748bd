"""Makes texts to reverse, and fetches the base model: `python prepare.py FOLDER`.

FOLDER/settings.json says how. A text is a few made-up words, "tano kelumi bo", drawn from the seed alone.
All differ. In the order of their hashes the first are the judge's, to search, to confirm and to report with.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from making import Row, base_model, distinct, first, identity, run, settings_of, split, write

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def texts(settings: SimpleNamespace, many: int) -> Iterator[Row]:
    """Two words or more, of one to three syllables each."""
    draw = random.Random(settings.seed)
    for _ in range(many):
        question = " ".join(
            "".join(draw.choice(CONSONANTS) + draw.choice(VOWELS) for _ in range(draw.randint(1, 3)))
            for _ in range(draw.randint(2, settings.words))
        )
        yield {"id": identity(question), "question": question, "answer": question[::-1]}


def main(folder: Path) -> None:
    settings = settings_of(folder)
    judged = settings.search + settings.confirm + settings.report
    wanted = judged + settings.train
    rows = distinct(first(texts(settings, 20 * wanted), wanted))
    write(folder, train=rows[judged:], judge=split(rows[:judged], vars(settings)), curve=settings.curve)
    base_model(settings.model, settings.model_revision, folder / "data" / "base")


if __name__ == "__main__":
    run("reverse_text", main)
