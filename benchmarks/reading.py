"""The cost of reading foreign text in a confined process: an edit from answer to workspace, against the same functions
called in the engine itself.

    python -m benchmarks.reading [--rounds 30] [--hostile] [--json]

The edit changes three lines of the `ppo` trainer, told as a diff. `--hostile` also reads the texts of
tests/support/hostile_texts.py, and tells the longest and how many are refused for a limit. An idle machine is needed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tasks import formats, trainers
from tasks.editing import checks, patches
from tasks.editing.python_source import meaning_of
from tasks.llm import reading
from tasks.sandbox.reading.reader import Unreadable, read

NAME = "train.py"
BEFORE = (Path(trainers.__path__[0]) / "ppo.py").read_text()
AFTER = BEFORE.replace("import", "import  ", 1).replace("return", "return  ", 2)
ASK = Callable[..., object]


def edit(ask: ASK, number: int) -> None:
    """All readings of one edit; the number makes it another one each time."""
    after, files = f"{AFTER}# {number}\n", {NAME: BEFORE}
    diff = ask(patches.difference, files, {NAME: after})
    answer = f"RATIONALE: why\n\n```diff\n{diff}```\n"
    ask(reading.header, answer, [NAME])
    ask(formats.changed, answer, files, [NAME], "any")
    ask(patches.patched, files, diff, False)
    ask(meaning_of, after)
    ask(checks.edited_program, files, [], {}, diff, [NAME], files, ["optimizer.step"], "cartpole")


def here(function: Callable[..., object], *values: object) -> object:
    return function(*values)


def milliseconds(step: Callable[[int], object], rounds: int) -> float:
    taken = []
    for number in range(rounds + 1):
        began = time.perf_counter()
        step(number)
        taken.append(1000 * (time.perf_counter() - began))
    return round(statistics.median(taken[1:]), 1)


def hostile() -> dict[str, float]:
    """Each hostile text read as an answer and as a program."""
    from tests.support.hostile_texts import all_of_them

    longest, limits, readings = 0.0, 0, 0
    for text in all_of_them():
        asked: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (reading.proposals, (text.text,)),
            (formats.changed, (text.text, {NAME: "x = 1\n"}, [NAME], "any")),
            (meaning_of, (text.text,)),
        ]
        for function, values in asked:
            began = time.perf_counter()
            try:
                read(function, *values)
            except Unreadable as wrong:
                limits += not wrong.stated
            longest, readings = max(longest, time.perf_counter() - began), readings + 1
    return {"hostile_readings": readings, "hostile_limits": limits, "hostile_longest_s": round(longest, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--hostile", action="store_true", help="read the hostile texts, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    asked = parser.parse_args()
    rounds = asked.rounds
    found: dict[str, float] = {
        "one_reading_ms": milliseconds(lambda number: read(patches.is_place, NAME), rounds),
        "edit_in_the_engine_ms": milliseconds(lambda number: edit(here, number), rounds),
        "edit_confined_ms": milliseconds(lambda number: edit(read, number), rounds),
    }
    if asked.hostile:
        found |= hostile()
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        for name, figure in found.items():
            print(f"{name:24} {figure:g}")


if __name__ == "__main__":
    main()
