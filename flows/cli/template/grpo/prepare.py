"""Makes the questions, and fetches the model: `python prepare.py FOLDER`. Put your own questions into `questions`."""

import random
from dataclasses import dataclass
from pathlib import Path

from making import Place, base_model, distinct, identity, run, settings_of, split, write


@dataclass(frozen=True)
class Settings:
    """The keys of prepare.settings. A model is a name on the hub, or the absolute path of a folder."""

    model: str = "HuggingFaceTB/SmolLM2-135M-Instruct"
    model_revision: str = "main"
    questions: int = 3000


def questions(many: int) -> list[dict[str, str]]:
    """Rows with id, question and answer; no question twice."""
    draw, rows = random.Random(0), []
    for _ in range(many):
        a, b = draw.randint(10, 999), draw.randint(10, 999)
        text = f"What is {a} + {b}? Answer with the number alone."
        rows.append({"id": identity(text), "question": text, "answer": str(a + b)})
    return distinct(rows)


def main(folder: Path) -> None:
    settings = settings_of(Settings, folder)
    rows = questions(settings.questions)
    judged = {name: len(rows) // 10 for name in ("search", "confirm", "report")}
    held = sum(judged.values())
    write(folder, train=rows[held:], judge=split(rows[:held], judged))
    base_model(Place("model", settings.model, settings.model_revision), folder / "data" / "base")


if __name__ == "__main__":
    run("questions", main)
