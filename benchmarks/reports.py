"""What a report costs of a long campaign, and the index of many campaigns: processor seconds and bytes.

    python -m benchmarks.reports [--trials 100 1000 3000] [--campaigns 500] [--json]

The campaigns are made without training: decided trials with parameters drawn at random, curves, a crash in twenty with
the end of a traceback, a rationale of a few lines, an edit in ten, and a wait for a slot before each. Each figure is of
one call in this process, everything imported before. "Ended" is the report at a campaign's end, with importances and
ideas; "running" the one that is written on the way.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.problems import NOISE, SPACE, rugged
from benchmarks.size import write_environment
from environments.score import Score
from flows.report.write import write_index, write_report
from flows.spec.campaign_spec import CampaignSpec
from flows.status import CampaignEnd
from tasks.store.ledger import Ledger
from tasks.store.workspace import TRIAL
from tasks.trial import Params, Proposal, Run, Trial, Verdict

ENDED, RUNNING = CampaignEnd("finished", "all trials done"), CampaignEnd("running", "")
EDIT = "--- a/fit.py\n+++ b/fit.py\n@@ -1,3 +1,3 @@\n" + " import json\n-old = 1\n+new = 2\n" * 10
"""A small edit."""
WORDS = "a larger step early and a smaller one late, since the last curves flatten after a third of the budget; " * 3
Figures = dict[str, float]


def campaign(problem: Path, name: str, trials: int) -> Ledger:
    """A campaign of so many decided trials beside its baseline."""
    ledger = CampaignSpec.of(environment=str(problem), name=name).open()
    draw, most = random.Random(1), float("-inf")
    for number in range(trials + 1):
        trial, most = decided(number, draw, most)
        place = ledger.place(number)
        place.path.mkdir(parents=True)
        place.trial.write_bytes(TRIAL.dump_json(trial))
        ledger.event("waiting", number=number, who="cpu-0")
    return ledger


def decided(number: int, draw: random.Random, most: float) -> tuple[Trial, float]:
    """A trial, and the best score up to it."""
    rng = np.random.default_rng(draw.randrange(2**32))
    params: Params = {key: one.sample(rng) for key, one in SPACE.items()}
    level = rugged(params) + draw.gauss(0, NOISE)
    crashed = number > 0 and draw.random() < 0.05
    curve = tuple(level * (step + 1) / 20 + draw.gauss(0, NOISE / 4) for step in range(20))
    began = 1.7e9 + 12 * number
    run = Run(
        f"trials/{number:04d}", number, 5.0, "crash" if crashed else "finished", steps=20, started=began,
        wall_seconds=5.5, startup=0.3, curve=curve,
    )  # fmt: skip
    edit = EDIT if number and number % 10 == 0 else None
    proposal = Proposal(params, edit, rationale=WORDS, seen=number, proposer="random_search", seconds=0.1)
    if crashed:
        reason = f"exited with status 1\n| Traceback (most recent call last):\n| OSError: disk {number} is full"
        return Trial(
            number, 1, number, proposal, (run,), Score.missing(reason, True), Verdict("crash", reason), 6.0
        ), most
    kept = level > most
    verdict = Verdict("keep", "better", "provisional") if kept else Verdict("discard", f"not better than {most:.4g}")
    score = Score.of([level + draw.gauss(0, NOISE) for _ in range(16)], True)
    return Trial(number, 1, number, proposal, (run,), score, verdict, 6.0), max(level, most)


def timed(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def of_report(ledger: Ledger) -> Figures:
    return {
        "seconds/running": timed(lambda: write_report(ledger, RUNNING)),
        "seconds/ended": timed(lambda: write_report(ledger, ENDED)),
        "mb/report.html": (ledger.path / "report.html").stat().st_size / 1e6,
        "mb/timeline.json": (ledger.path / "timeline.json").stat().st_size / 1e6,
    }


def of_index(problem: Path, campaigns: int, trials: int = 20) -> Figures:
    """The index of campaigns of twenty trials."""
    for number in range(campaigns):
        campaign(problem, f"index-{number}", trials)
    return {"seconds/index": timed(write_index), "mb/index.html": write_index().stat().st_size / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 1000, 3000])
    parser.add_argument("--campaigns", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightshift-reports-") as folder:
        os.environ["NIGHTSHIFT_HOME"] = f"{folder}/runs"
        problem = write_environment(Path(folder, "problem"))
        write_report(campaign(problem, "first", 15), ENDED)  # imports what the others use
        figures = {
            f"report of {count} trials": of_report(campaign(problem, f"long-{count}", count)) for count in given.trials
        }
        figures[f"index of {given.campaigns} campaigns"] = of_index(problem, given.campaigns)
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    table = Table("of", "figure", "")
    for of, column in figures.items():
        for key, value in column.items():
            table.add_row(of, key, f"{value:.3g}")
    Console().print(table)


if __name__ == "__main__":
    main()
