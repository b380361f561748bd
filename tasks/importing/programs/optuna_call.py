"""Calls `objective(trial)` of objective.py once, with a trial of Optuna's that has the parameters of this run.

What it returns becomes the score, and what it reports progress. It is never pruned by itself.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

import numpy as np
from autoresearch_rl.target.progress import emit_progress  # type: ignore[import-not-found]
from optuna.trial import FixedTrial

METRIC, SEED = sys.argv[1], int(os.environ["AR_SEED"])


class Reporting(FixedTrial):
    """A trial whose reports become lines of progress."""

    def report(self, value: float, step: int) -> None:
        super().report(value, step)
        emit_progress(step=int(step), step_target=0, metrics={METRIC: float(value)})


if __name__ == "__main__":
    random.seed(SEED)
    np.random.seed(SEED % 2**32)
    from objective import objective  # type: ignore[import-not-found]

    returned: Any = objective(Reporting(json.loads(os.environ["AR_PARAMS_JSON"])))
    first, *others = returned if isinstance(returned, (tuple, list)) else [returned]
    also = {f"value_{place}": float(value) for place, value in enumerate(others, 2)}
    emit_progress(step=0, step_target=0, metrics={METRIC: float(first), **also})
