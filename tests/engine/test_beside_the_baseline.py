"""When a trial may begin beside the baseline: a slot is free that the baseline needs no longer, and no score is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from environments.earlier_trials import FILE
from flows.engine.campaign_state import CampaignState
from flows.engine.next_trial import may_begin_beside_the_baseline
from flows.engine.worker_pool import AHEAD
from flows.spec.advanced import Advanced
from flows.spec.campaign_spec import CampaignSpec
from flows.spending.budget import CampaignBudget
from tasks.machine.slots import Slots
from tasks.system.files import write_atomic
from tasks.trial import Proposal
from tests.support.noisy import noisy

PARTS = ("", "run-2", "run-3")
BASELINE, OTHER = Proposal({"x": 0.0}), Proposal({"x": 1.0})
SCRIPT = {"proposals": [{"rationale": "as a test says"}]}


def begun(folder: Path, judged: int = 0, **parameters: Any) -> CampaignState:
    """A campaign with so many judged runs of its baseline."""
    asked = {"environment": str(folder), "name": "night", "tracking": "off", "parallel": 2, **parameters}
    spec = CampaignSpec.of(**asked)
    ledger = spec.open()
    for part in PARTS[:judged]:
        write_atomic(ledger.results / f"{ledger.at(0, part)}/evaluate", "{}")
    budget = CampaignBudget(spec, ledger, 0)
    return CampaignState(spec, ledger, None, Slots(ledger.path), (), lambda _: None, budget)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parallel", "judged", "others", "may"),
    [(1, 2, 0, False), (2, 0, 0, False), (2, 1, 0, False), (2, 2, 0, True), (2, 2, 1, False), (2, 3, 0, False),
     (4, 0, 0, True), (4, 0, 1, False), (4, 1, 1, True)],
)  # fmt: skip
def test_a_trial_begins_in_a_slot_that_no_run_of_the_baseline_needs(
    tmp_path: Path, parallel: int, judged: int, others: int, may: bool
) -> None:
    state = begun(noisy(tmp_path / "noisy"), judged, parallel=parallel)
    under_way = {0: BASELINE, **dict.fromkeys(range(1, 1 + others), OTHER)}
    assert may_begin_beside_the_baseline(state, under_way) is may


def test_trials_that_have_trained_beside_it_leave_their_slot_to_others_up_to_a_few(tmp_path: Path) -> None:
    state, under_way = begun(noisy(tmp_path / "noisy"), 2), {0: BASELINE}
    for number in range(1, AHEAD + 1):
        assert may_begin_beside_the_baseline(state, under_way)
        under_way[number] = OTHER
        assert not may_begin_beside_the_baseline(state, under_way), "it trains"
        state._trained_ahead.add(number)
    assert state.resting == {*range(1, AHEAD + 1)}
    assert not may_begin_beside_the_baseline(state, under_way)


@pytest.mark.parametrize(
    "parameters",
    [{"proposer": "llm"}, {"proposer": "scripted", "advanced": Advanced.model_validate({"options": SCRIPT})},
     {"launch": "gpu-pair"}],
)  # fmt: skip
def test_who_is_told_the_baselines_score_and_who_trains_elsewhere_waits(
    tmp_path: Path, parameters: dict[str, Any]
) -> None:
    assert not may_begin_beside_the_baseline(begun(noisy(tmp_path / "noisy"), 2, **parameters), {0: BASELINE})


def test_what_was_learned_elsewhere_is_placed_by_the_baselines_score_first(tmp_path: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    (folder / FILE).write_text('{"params": {"x": 5.0}, "score": 4.0}\n')
    assert not may_begin_beside_the_baseline(begun(folder, 2), {0: BASELINE})
