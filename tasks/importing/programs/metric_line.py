"""The judge of an imported repository: the last line `NAME: NUMBER` or `NAME = NUMBER` of what training printed.

    python judge.py OUT RESULT NAME

Other such lines are written as figures beside the score. The lines come from the program that is scored, which can
print any number: this file is frozen, the number is not.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

LINE = re.compile(r"^\s*([A-Za-z][\w./-]{0,60})\s*[:=]\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*$")
TAIL_BYTES, MOST_FIGURES = 2**20, 40


def figures(log: Path) -> dict[str, float]:
    """The last number of each name in the end of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    found = (LINE.match(line) for line in re.split(r"[\r\n]", text))
    numbers = {match[1]: float(match[2]) for match in found if match}
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def main() -> None:
    out, result, metric = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    numbers = figures(out / "run.log")
    if metric not in numbers:
        raise SystemExit(f"training printed no line {metric}: NUMBER; it printed {', '.join(numbers) or 'no number'}")
    score = numbers.pop(metric)
    result.write_text(json.dumps({"score": score, "also": dict(list(numbers.items())[-MOST_FIGURES:])}))


if __name__ == "__main__":
    main()
