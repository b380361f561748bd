"""The judge of an imported sweep: the metric that the program logged. `python judge.py OUT RESULT METRIC`.

The last value counts, or the least or largest where `define_metric` says so, as in W&B's summary. It comes from the
program that is scored. Where code is edited, measure in this file what training has left in OUT/run instead, on data
that the program does not read.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

MOST_FIGURES = 40
LEAST_OR_LARGEST = {"min": min, "max": max}

out, result, metric = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
seen: dict[str, list[float]] = {}
stated: dict[str, float] = {}
counts: dict[str, str] = {}
log = out / "wandb.jsonl"
for text in log.read_text().splitlines() if log.is_file() else ():
    line = json.loads(text)
    stated |= line.get("summary", {})
    counts |= line.get("define", {})
    for name, value in line.get("log", {}).items():
        seen.setdefault(name, []).append(value)
        stated.pop(name, None)
found: dict[str, float] = {}
for name, values in seen.items():
    finite = [value for value in values if math.isfinite(value)]
    extreme = LEAST_OR_LARGEST.get(counts.get(name, ""))
    found[name] = extreme(finite) if extreme and finite else values[-1]
found |= stated
if metric not in found:
    raise SystemExit(f"the program logged no {metric!r}; it logged {', '.join(found) or 'nothing'}")
score = found.pop(metric)
if not math.isfinite(score):
    raise SystemExit(f"the last {metric!r} that the program logged is {score}")
found = {name: value for name, value in found.items() if math.isfinite(value)}
result.write_text(json.dumps({"score": score, "also": dict(list(found.items())[-MOST_FIGURES:])}))
