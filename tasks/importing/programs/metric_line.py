"""The judge of an imported repository: the last line `NAME: NUMBER` or `NAME = NUMBER` of what training printed.

    python judge.py OUT RESULT NAME

Where no line has it alone, the last mention within a line counts, and else the last progress report. Other such lines
are written as figures beside the score. The lines come from the program that is scored, which can
print any number: this file is frozen, the number is not.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from pathlib import Path

NUMBER = r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?)))"
LINE = re.compile(rf"^\s*([A-Za-z][\w./-]{{0,60}})\s*[:=]\s*{NUMBER}\s*$")
SAME = 1e-4
TAIL_BYTES, MOST_FIGURES = 2**20, 40


def tail(file: Path) -> list[str]:
    """The last lines of a file; none if it is not there."""
    if not file.is_file():
        return []
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - TAIL_BYTES))
        return re.split(r"[\r\n]+", opened.read(TAIL_BYTES).decode("utf-8", "replace"))


def figures(lines: list[str]) -> dict[str, float]:
    """The last number of each name that has a line of its own."""
    numbers = {match[1]: float(match[2]) for match in map(LINE.match, lines) if match}
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def mentioned(lines: list[str], name: str) -> list[float]:
    """The numbers of a name within lines."""
    pattern = re.compile(rf"(?<![\w./-]){re.escape(name)}\s*[:=]\s*{NUMBER}(?![\w.])")
    return [float(match[1]) for line in lines for match in pattern.finditer(line)]


def reported(lines: list[str], name: str) -> list[float]:
    """The numbers of a metric in progress reports."""
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # the first line may be cut, others have no metrics
            found.append(float(json.loads(line)["metrics"][name]))
    return found


def main() -> None:
    out, result, metric = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    lines = tail(out / "run.log")
    numbers = figures(lines)
    named = [numbers.pop(metric)] if metric in numbers else mentioned(lines, metric)
    reports = reported(tail(out / "progress.jsonl"), metric)
    if not named and not reports:
        raise SystemExit(f"training printed no line {metric}: NUMBER; it printed {', '.join(numbers) or 'no number'}")
    score = (named or reports)[-1]
    if not math.isfinite(score):  # what it was before the training diverged is no score
        raise SystemExit(f"training ended with {metric} = {score}")
    if reports and math.isclose(score, reports[-1], rel_tol=SAME, abs_tol=SAME):
        score = reports[-1]  # the printed number is the reported one, rounded
    result.write_text(json.dumps({"score": score, "also": dict(list(numbers.items())[-MOST_FIGURES:])}))


if __name__ == "__main__":
    main()
