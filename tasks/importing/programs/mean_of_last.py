"""The judge of an imported script: the mean of the last values that it logged of its metric.

    python judge.py OUT RESULT METRIC COUNT

They come from the program that is scored, which can log any number: this file is frozen, the numbers are not.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

MOST_FIGURES = 40
FIGURE = r"[A-Za-z0-9][A-Za-z0-9_\-. :/@]{0,99}"
"""Names that figures beside a score may have."""


def whole_lines(file: Path) -> list[str]:
    """The lines of a file, less one that a kill has cut off; none if it is not there."""
    return file.read_text().rpartition("\n")[0].splitlines() if file.is_file() else []


def main() -> None:
    out, result, metric, count = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    log, progress = out / "metric.txt", out / "progress.jsonl"
    values = [float(line) for line in whole_lines(log)]
    last = values[-count:]
    if not last:
        raise SystemExit(f"training logged no {metric!r}: is an episode longer than the budget?")
    score = sum(last) / len(last)
    if not math.isfinite(score):
        raise SystemExit(f"the last {len(last)} values of {metric!r} have the mean {score}")
    reports = [line for line in whole_lines(progress) if '"metrics"' in line]
    newest = json.loads(reports[-1])["metrics"] if reports else {}
    figures = [(name, value) for name, value in newest.items() if name != metric and re.fullmatch(FIGURE, name)]
    also = dict(figures[-MOST_FIGURES:]) | {"values/logged": len(values)}
    result.write_text(json.dumps({"score": score, "also": also}))


if __name__ == "__main__":
    main()
