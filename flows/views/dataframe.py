"""A campaign as pandas DataFrames, for notebooks: its trials, training runs and learning curves.

load_history("cartpole-1")
"""

from __future__ import annotations

import pandas  # type: ignore[import-untyped]

from flows.status import document
from tasks.describe import setting
from tasks.store.ledger import Ledger
from tasks.trial import TWENTIETHS


def load_history(campaign: str) -> pandas.DataFrame:
    """The `trials` of `status --json`, one row per finished trial, in the order in which they were decided.

    A missing score is NaN (a crash has none), and each parameter is a column `params.<name>`.
    """
    trials = document(Ledger.open(campaign))["trials"]
    params = pandas.DataFrame([trial.pop("params") for trial in trials]).add_prefix("params.")
    table = pandas.DataFrame(trials or {"trial": [], "verdict": [], "score": [], "se": [], "gain": []}).join(params)
    return table.astype(dict.fromkeys(("score", "se", "gain"), "float64"))  # NaN for None


def load_runs(campaign: str) -> pandas.DataFrame:
    """One row per training run that was judged, the search's first, then each certificate's.

    `trial` says which program and parameters it trained (0: the baseline), `phase` what for: `search`, `rerun`,
    `certificate 1`, or `certificate 1 in ENVIRONMENT at 4x the budget`. `score` is NaN where there is none.
    """
    ledger, judged = Ledger.open(campaign), []
    for trial in ledger.history():
        scores = trial.score.each
        judged += [(trial.number, "search", *pair) for pair in zip(trial.runs[-len(scores) :], scores, strict=False)]
        judged += [(rerun.of, "rerun", rerun.run, rerun.score) for rerun in trial.reruns]
    for one in ledger.certificates():
        phase = f"certificate {one.look}"
        phase += f" in {setting(one.environment, one.conditions.budget)}" if one.elsewhere else ""
        arms = {"champion": one.champion, "baseline": 0}
        judged += [(arms[fresh.arm], phase, fresh.run, fresh.score) for fresh in one.runs[one.carried :]]
    rows = [(*which, run.seed, run.status, run.seconds, score.value, score.se) for *which, run, score in judged]
    table = pandas.DataFrame(rows, columns=["trial", "phase", "seed", "status", "seconds", "score", "se"])
    return table.astype({"score": "float64", "se": "float64"})  # NaN for None


def load_curves(campaign: str) -> pandas.DataFrame:
    """The learning curves of the search's training runs: `trial`, `run` (from 1), `percent` of the budget, `value`.

    Values are what the programs reported of the environment's metric in training: claims, not scores.
    """
    rows = [
        (trial.number, number, 100 * (at + 1) / TWENTIETHS, value)
        for trial in Ledger.open(campaign).history()
        for number, run in enumerate(trial.runs, 1)
        for at, value in enumerate(run.curve)
        if value is not None
    ]
    return pandas.DataFrame(rows, columns=["trial", "run", "percent", "value"])
