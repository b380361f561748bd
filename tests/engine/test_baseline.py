"""The baseline's runs: a seed that crashes is told, too many end the campaign."""

from __future__ import annotations

from pathlib import Path

import pytest
from flows.engine.runner import Runner
from tests.support.runners import bench, prefect_at

from environments.score import Score
from flows.spec.campaign_spec import CampaignSpec
from tasks.decide import weigh
from tasks.deciding.champion_estimate import champion_estimate
from tasks.deciding.guards import guard_noise
from tasks.deciding.values import JudgedTrial
from tasks.store import workspace
from tasks.store.seeds import derive
from tasks.system.files import write_atomic
from tasks.trial import Proposal, Run, Trial, Verdict, measured
from tests.support.histories import scored
from tests.support.noisy import DRAW, noisy


def crashing(folder: Path, *parts: str, parallel: int = 1) -> Runner:
    """The bench of a new campaign whose baseline crashes under these training seeds."""
    seeds = {derive(5, "train", 0, 1, part) for part in parts}
    draw = DRAW.replace("bonus = 0.0", f"if config['seed'] in {seeds}:\n    raise SystemExit('no luck')\nbonus = 0.0")
    folder = noisy(folder, draw)
    asked = CampaignSpec.of(environment=str(folder), name="night", tracking="off", seed=5, parallel=parallel)
    return bench(asked.open(), ())


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [1, 2])
def test_a_baseline_of_which_one_run_crashed_is_compared_with_by_the_others(
    tmp_path: Path, server: str, parallel: int
) -> None:
    runner = crashing(tmp_path / "noisy", "run-2", parallel=parallel)
    ledger, proposal = runner.ledger, Proposal({"x": 0.0})
    with prefect_at(server):
        tried = runner.trial(0, proposal)
    assert [run.status for run in tried.runs] == ["finished", "crash", "finished"]
    assert [score.value is None for score in tried.score.each] == [False, True, False]
    assert tried.score.value == pytest.approx(sum(tried.score.values) / 2)
    verdict = weigh((), ledger.environment, runner.spec.loaded_rule, tried)
    assert isinstance(verdict, Verdict) and "1 of its 3 runs crashed" in verdict.reason
    trial = Trial(0, 1, 0, proposal, tried.runs, tried.score, verdict)
    write_atomic(ledger.place(0).trial, workspace.TRIAL.dump_json(trial).decode())
    for part, run, score in zip(("", "run-2", "run-3"), tried.runs, tried.score.each, strict=True):
        assert workspace.settled(ledger.place(0, part), part) == (run, score)
    level = champion_estimate(ledger.history())
    assert level is not None and abs(level.level) < 10
    assert [score.value for score in measured(ledger.history(), 0)] == list(tried.score.values)
    with prefect_at(server):
        assert runner.trial(0, proposal) == tried, "a later process sees the same"


def test_a_baseline_that_cannot_have_two_scores_is_run_no_further(tmp_path: Path, server: str) -> None:
    runner = crashing(tmp_path / "noisy", "", "run-2", "run-3")
    with prefect_at(server):
        tried = runner.trial(0, Proposal({"x": 0.0}))
    assert len(tried.runs) == 2 and tried.score.value is None
    assert str(tried.score.error).startswith("run 1 of 2: exited with status 1")


def test_a_score_over_runs_may_do_without_some_of_them() -> None:
    runs = [scored(1.0), scored(None), scored(4.0)]
    assert Score.over(runs).value is None and Score.over(runs, fewest=3).value is None
    found = Score.over(runs, fewest=2)
    assert (found.value, found.values, len(found.each), found.n) == (2.5, (1.0, 4.0), 3, 32)
    assert Score.over([scored(None)], fewest=1).value is None


def test_guards_and_noise_are_those_of_the_runs_that_have_a_score() -> None:
    tried = JudgedTrial(0, Proposal({}), tuple(Run(f"r{n}", n, 5.0, "finished") for n in range(3)),
                        Score.over([scored(1.0), scored(None), scored(4.0)], fewest=2))  # fmt: skip
    history = (Trial(0, 1, 0, tried.proposal, tried.runs, tried.score, Verdict("keep", "the baseline")),)
    assert len(measured(history, 0)) == 2 and guard_noise({}, history) == {}
