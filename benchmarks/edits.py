"""Do edits apply as intended? Answers as language models write them, with known defects, from a seed.

    python -m benchmarks.edits [--each 40] [--seed 1] [--json]

Programs are the bundled trainers and generated ones, full of functions that are nearly alike, some with tabs or with
the ends of lines of Windows. Each is changed at random in one to three places; the change is written as a model would
write it, with a defect, and has to come out to the letter. An answer is `applied` if it does, `refused` if nothing
comes of it, and `wrong` (in JSON: `wrong_place`) if anything else does. Of the answers marked `refuse` nothing may
come: they are about lines that the file no longer has, cut off, elided or not clear. They count as wrong if something
does, and are not among the `diffs` otherwise. `git` is `git apply --recount --ignore-whitespace -C1` alone.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.defects import (
    BLOCK_DEFECTS,
    DEFECTS,
    FILE_DEFECTS,
    NAME,
    Defect,
    Edit,
    blocks,
    edit,
    none,
    several,
    whole,
)
from benchmarks.tables import show
from tasks.editing.edits import EditFailed
from tasks.editing.formats import changed
from tasks.editing.patches import git_environment

EDITABLE = (NAME, "net.py")
GIT = ("git", "apply", "--recount", "--ignore-whitespace", "-C1")


@dataclass(frozen=True)
class Case:
    """An answer with a defect, the file it is for, and what it has to become; None if it has to be refused."""

    form: str
    defect: str
    before: str
    answer: str
    after: str | None


def cases(each: int, seed: int) -> Iterator[Case]:
    """So many answers for each defect, and four times as many with several."""
    kinds: list[tuple[str, Defect, Defect, Defect]] = [("diff", none, none, defect) for defect in DEFECTS]
    kinds += [("diff", none, none, several)] * 4
    kinds += [("search_replace", first, blocks, second) for first, second in BLOCK_DEFECTS]
    kinds += [("whole_file", first, whole, second) for first, second in FILE_DEFECTS]
    for number, (form, *steps) in enumerate(kinds):
        rng = random.Random(f"{seed} {number}")
        name = next((step.__name__ for step in (steps[0], steps[2]) if step is not none), "none")
        for _ in range(each):
            made: Edit | None = None
            while made is None:
                made = edit(rng)
                for step in steps:
                    made = step(made, rng) if made is not None else None
            yield Case(form, name, made.before, made.diff(), made.after)


def ours(case: Case) -> str | None:
    """What becomes of the file; None when the answer is refused."""
    try:
        return changed(case.answer, {NAME: case.before}, EDITABLE)[NAME]
    except EditFailed:
        return None


def gits(case: Case) -> str | None:
    """What git alone makes of it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / NAME
        place.write_bytes(case.before.encode())
        alone = git_environment(GIT_CEILING_DIRECTORIES=str(Path(folder).parent))
        done = subprocess.run(GIT, cwd=folder, input=case.answer.encode(), capture_output=True, env=alone)
        return place.read_bytes().decode() if done.returncode == 0 else None


def outcome(case: Case, made: str | None) -> str:
    if made is None:
        return "refused"
    return "applied" if made == case.after else "wrong"


Tally = Mapping[tuple[str, str, bool], tuple[Counter[str], Counter[str]]]
"""By form, defect and whether it has to be refused: the outcomes of ours, and of git."""


def tally(each: int, seed: int) -> Tally:
    found: dict[tuple[str, str, bool], tuple[Counter[str], Counter[str]]] = {}
    for case in cases(each, seed):
        mine, theirs = found.setdefault((case.form, case.defect, case.after is None), (Counter(), Counter()))
        mine[outcome(case, ours(case))] += 1
        if case.form == "diff":
            theirs[outcome(case, gits(case))] += 1
    return found


def figures(found: Tally) -> dict[str, int]:
    """Of the diffs that have a right result: how many there are and how many apply, ours and with git alone.

    `wrong_place` is of all answers in all forms, those that have to be refused among them.
    """
    diffs = [both for (form, _, refuse), both in found.items() if form == "diff" and not refuse]
    return {
        "diffs": sum(mine.total() for mine, _ in diffs),
        "applied": sum(mine["applied"] for mine, _ in diffs),
        "wrong_place": sum(mine["wrong"] for mine, _ in found.values()),
        "git_applied": sum(theirs["applied"] for _, theirs in diffs),
    }


def print_tables(found: Tally, title: str) -> None:
    for form in dict.fromkeys(form for form, _, _ in found):
        sides = ("ours", "git") if form == "diff" else ("ours",)
        ways = ("applied", "refused", "wrong")
        rows = []
        for (its, defect, refuse), both in found.items():
            if its == form:
                counts = [both[number][way] for number, _ in enumerate(sides) for way in ways]
                rows.append((defect.replace("_", " ") + " (refuse)" * refuse, both[0].total(), *counts))
        show((form, "answers", *(heading for side in sides for heading in (side, *ways[1:]))), rows, title)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=40, help="answers for each defect")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    asked = parser.parse_args()
    found = tally(asked.each, asked.seed)
    if asked.json:
        print(json.dumps(figures(found), indent=2))
    else:
        print_tables(found, f"{asked.each} answers each, seed {asked.seed}")
        print(", ".join(f"{name} {count}" for name, count in figures(found).items()))


if __name__ == "__main__":
    main()
