"""A trial's runs: a seed of the baseline that crashes is told, too many end the campaign, and no run is made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments.score import Score
from flows.campaign import search
from flows.engine.stopping import Stop, reached
from flows.spec.campaign_spec import CampaignSpec
from tasks.deciding.champion_estimate import champion_estimate
from tasks.deciding.guards import guard_noise
from tasks.spending.spent import note_bought
from tasks.store.campaign_lock import STOP
from tasks.store.ledger import Ledger
from tasks.store.seeds import derive
from tasks.trial import Proposal, Run, Trial, Usage, Verdict, measured
from tests.support.histories import scored
from tests.support.nights import on_night
from tests.support.noisy import DRAW, noisy


def crashing(folder: Path, *parts: str, parallel: int = 1, replicates: int = 1) -> Ledger:
    """A new campaign whose baseline crashes under these training seeds."""
    seeds = {derive(5, "train", 0, 1, part) for part in parts}
    draw = DRAW.replace("bonus = 0.0", f"if config['seed'] in {seeds}:\n    raise SystemExit('no luck')\nbonus = 0.0")
    return CampaignSpec.of(
        environment=str(noisy(folder, draw)), name="night", tracking="off", seed=5, parallel=parallel,
        replicates=replicates,
    ).open()  # fmt: skip


def baseline_of(ledger: Ledger, server: str) -> tuple[Trial, Stop]:
    """The baseline as a campaign decides it that is asked to stop thereafter, and how that ends."""
    stop = on_night(server, ledger, search, show=lambda _: (ledger.path / STOP).touch())
    (first,) = ledger.history()
    return first, stop


@pytest.mark.parametrize("parallel", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_baseline_of_which_one_run_crashed_is_compared_with_by_the_others(
    tmp_path: Path, server: str, parallel: int
) -> None:
    ledger = crashing(tmp_path / "noisy", "run-2", parallel=parallel)
    first, stop = baseline_of(ledger, server)
    assert [run.status for run in first.runs] == ["finished", "crash", "finished"]
    assert [score.value is None for score in first.score.each] == [False, True, False]
    assert first.score.value == pytest.approx(sum(first.score.values) / 2)
    assert first.verdict.kind == "keep" and "1 of its 3 runs crashed" in first.verdict.reason
    assert stop.state == "stopped"
    level = champion_estimate(ledger.history())
    assert level is not None and abs(level.level) < 10
    assert [score.value for score in measured(ledger.history(), 0)] == list(first.score.values)

    trained = {path: path.stat().st_mtime_ns for path in ledger.trials.glob("*/out/model.json")}
    ledger.place(0).trial.unlink()  # as if it was killed before it wrote that down
    again, _ = baseline_of(ledger, server)
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


def test_a_score_over_runs_may_do_without_some_of_them() -> None:
    runs = [scored(1.0), scored(None), scored(4.0)]
    assert Score.over(runs).value is None and Score.over(runs, fewest=3).value is None
    over = Score.over(runs, fewest=2)
    assert (over.value, over.values, len(over.each), over.n) == (2.5, (1.0, 4.0), 3, 32)
    assert Score.over([scored(None)], fewest=1).value is None
    trained = tuple(Run(f"r{n}", n, 5.0, "finished") for n in range(3))
    history = (Trial(0, 1, 0, Proposal({}), trained, over, Verdict("keep", "the baseline")),)
    assert len(measured(history, 0)) == 2 and guard_noise({}, history) == {}


@pytest.mark.parametrize(("price", "state"), [(1.0, "finished"), (None, "stopped")])
def test_without_a_known_price_no_money_is_left_for_a_certificate(
    tmp_path: Path, server: str, price: float | None, state: str
) -> None:
    """What is reserved for it is a sum of which a part is not known."""
    limits = {"usd_per_hour": 3600.0, "max_usd": 2000.0}
    ledger = CampaignSpec.of(
        environment=str(noisy(tmp_path / "noisy")), name="night", tracking="off", trials=2, advanced=limits
    ).open()
    note_bought(ledger, Usage(1, 0, 0, price and 2000.0))
    stop = on_night(server, ledger, lambda one: reached(one, ()))
    assert stop is not None and stop.state == state, stop
