"""A trial's runs: a seed of the baseline that crashes is told, too many end the campaign, and no run is made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.campaign import search
from tasks.store.ledger import Ledger
from tasks.task_key import derive
from tasks.trial import measured
from tests.support.nights import on_night
from tests.support.noisy import DRAW, campaign, noisy


def crashing(folder: Path, *parts: str) -> Ledger:
    """A new campaign whose baseline crashes under these training seeds."""
    seeds = {derive(5, "train", 0, 1, part) for part in parts}
    draw = DRAW.replace("bonus = 0.0", f"if config['seed'] in {seeds}:\n    raise SystemExit('no luck')\nbonus = 0.0")
    return campaign(noisy(folder, draw), seed=5, replicates=1, trials=1)


def test_a_baseline_of_which_one_run_crashed_is_compared_with_by_the_others(tmp_path: Path, server: str) -> None:
    ledger = crashing(tmp_path / "noisy", "run-2")
    assert on_night(server, ledger, search).state == "finished"
    first, later = ledger.history()
    assert [run.status for run in first.runs] == ["finished", "crash", "finished"]
    assert [score.value is None for score in first.score.each] == [False, True, False]
    assert first.score.value == pytest.approx(sum(first.score.values) / 2)
    assert first.verdict.kind == "keep" and "1 of its 3 runs crashed" in first.verdict.reason
    assert [score.value for score in measured(ledger.history(), 0)] == list(first.score.values)

    trained = {path: path.stat().st_mtime_ns for path in ledger.trials.glob("*/out/model.json")}
    for trial in (first, later):
        ledger.place_of(trial).trial.unlink()  # as if it was killed before it wrote that down
    on_night(server, ledger, search)
    again, _ = ledger.history()
    assert (again.runs, again.score, again.verdict) == (first.runs, first.score, first.verdict)
    assert {path: path.stat().st_mtime_ns for path in ledger.trials.glob("*/out/model.json")} == trained


def test_a_baseline_that_cannot_have_two_scores_is_run_no_further_and_ends_the_campaign(
    tmp_path: Path, server: str
) -> None:
    ledger = crashing(tmp_path / "noisy", "", "run-2", "run-3")
    stop = on_night(server, ledger, search)
    (first,) = ledger.history()
    assert len(first.runs) == 2 and first.verdict.kind == "crash"
    assert str(first.score.error).startswith("run 1 of 2: exited with status 1")
    assert stop.state == "failed" and "no luck" in stop.reason and "nightshift rerun night 0" in stop.reason
