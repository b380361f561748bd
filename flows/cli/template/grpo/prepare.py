"""Makes the questions, and fetches the model: `python prepare.py FOLDER`. Put your own questions into `questions`."""

import json
import random
from pathlib import Path

from making import SPLITS, base_model, distinct, identity, run, split, write


def questions(many: int) -> list[dict[str, str]]:
    """Rows with id, question and answer; no question twice."""
    draw, rows = random.Random(0), []
    for _ in range(many):
        a, b = draw.randint(10, 999), draw.randint(10, 999)
        text = f"What is {a} + {b}? Answer with the number alone."
        rows.append({"id": identity(text), "question": text, "answer": str(a + b)})
    return distinct(rows)


def main(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())  # prepare.settings of environment.toml
    rows = questions(settings["questions"])
    tenth = len(rows) // 10
    write(folder, train=rows[3 * tenth :], judge=split(rows[: 3 * tenth], dict.fromkeys(SPLITS, tenth)))
    base_model(settings["model"], settings["model_revision"], folder / "data" / "base")


if __name__ == "__main__":
    run("questions", main)
