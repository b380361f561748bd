"""A small environment with a recipe: it makes questions that are numbers, and a judge asks them."""

from __future__ import annotations

from pathlib import Path

import environments
from environments import Environment
from tests.support.toy import QUADRATIC, quadratic

RECIPE = """\
import json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
settings = json.loads((folder / "settings.json").read_text())
number = 0
for name in ("data/train", "judge/search", "judge/confirm", "judge/report"):
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        for number in range(number, number + settings["questions"]):
            print(json.dumps({"id": f"{number:016x}", "question": f"{number} + 1", "answer": number + 1}), file=file)
    number += 1
"""

JUDGE = """\
import json, pathlib, sys

out, result, prepared, use = sys.argv[1:]
x = json.loads(pathlib.Path(out, "model.json").read_text())["x"]
pool = {"control": "search"}.get(use, use)
lines = pathlib.Path(prepared, "judge", f"{pool}.jsonl").read_text().splitlines()
first = json.loads(lines[0])["answer"]
pathlib.Path(result).write_text(json.dumps({"units": [(x - 1) ** 2] * len(lines), "also": {"first": first}}))
"""

ASKED = "{out} {result} {prepared} {use}"
TOML = QUADRATIC.replace("{out} {result}", ASKED) + (
    "\n[prepare]\nsettings.questions = 3\nseconds = 60\ndisk_gb = 0.01\n"
)


def pool(folder: Path, recipe: str = RECIPE, more: str = "", judge: str = JUDGE, command: str = ASKED) -> Environment:
    """The quadratic with a pool of questions, three to a file; `more` are further lines of [prepare].

    `command` are the arguments of `judge`.
    """
    quadratic(folder, judge=judge, toml=TOML.replace(ASKED, command) + more)
    (folder / "prepare.py").write_text(recipe)
    return environments.load(folder)
