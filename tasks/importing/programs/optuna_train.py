"""Runs an Optuna objective once, with the parameters of a trial: `python train.py METRIC`.

`objective(trial)` of objective.py gets a `FixedTrial`, so the code that the study optimised runs as it is. What it
returns becomes out/result.json, the score, and what it reports out/progress.jsonl. Seeds among the parameters get that
of the run.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from optuna.exceptions import TrialPruned
from optuna.trial import FixedTrial

METRIC = sys.argv[1]
config = json.loads(Path("config.json").read_text())
how = json.loads(Path("run.json").read_text())
out, began = Path(config["out"]), time.monotonic()
progress = (out / "progress.jsonl").open("a", buffering=1)


class Reporting(FixedTrial):
    """A trial whose reports become lines of progress. It is never pruned by itself."""

    def report(self, value: float, step: int) -> None:
        super().report(value, step)
        if math.isfinite(value):
            line = {"elapsed": time.monotonic() - began, "step": int(step), "metrics": {METRIC: float(value)}}
            print(json.dumps(line), file=progress)


def failed(why: str) -> None:
    print(json.dumps({"failed": why[:500]}), file=progress)
    raise SystemExit(why)


def main() -> None:
    random.seed(config["seed"])
    np.random.seed(config["seed"] % 2**32)
    sys.path.insert(0, str(Path.cwd()))
    from objective import objective  # type: ignore[import-not-found]

    params = {name: json.loads(value) if name in how["as_json"] else value for name, value in config["params"].items()}
    params |= {name: low + config["seed"] % (high - low + 1) for name, (low, high) in how["seeds"].items()}
    print('{"ready": true}', file=progress)
    try:
        returned: Any = objective(Reporting(params))
    except TrialPruned as pruned:
        failed(f"the objective raised TrialPruned: {pruned}")
    values = [float(value) for value in (returned if isinstance(returned, tuple | list) else [returned])]
    if not values or not all(map(math.isfinite, values)):
        failed(f"the objective returned {returned!r}, which is no finite number")
    also = {f"value_{place}": other for place, other in enumerate(values[1:], 2)}
    # With the parameters and the seed, since two runs may well return the same value, such as a share of right answers.
    of = {"params": config["params"], "seed": config["seed"]}
    (out / "result.json").write_text(json.dumps({"score": values[0], "also": also, **of}))


if __name__ == "__main__":
    main()
