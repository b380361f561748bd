"""A certificate on a finite pool of report questions: it is charged to the pool's account, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.runners import bench, prefect_at

from flows.engine import run_certificate
from flows.engine.preparation import ensure_prepared, report_pool
from flows.spec.campaign_spec import CampaignSpec
from tasks.certifying import holdout_uses
from tasks.trial import History
from tests.support.histories import tried
from tests.support.question_pool import pool
from tests.support.toy import quadratic
from tests.support.trusting import trusted

BASELINE = tried((), 2.25, 2.25, params={"x": 2.5}, higher_is_better=False)
GOOD: History = (BASELINE, tried((BASELINE,), 0.0, params={"x": 1.0}, higher_is_better=False))


@pytest.mark.slow
def test_a_certificate_is_tested_at_the_level_of_its_use_and_charged_once(tmp_path: Path, server: str) -> None:
    folder = trusted(pool(tmp_path / "pool").folder)
    ledger = CampaignSpec.of(environment=str(folder), name="night", tracking="off").open()
    ensure_prepared(ledger, "here")
    prepared = report_pool(ledger.environment)
    assert prepared is not None
    holdout_uses.charge(prepared, "an earlier campaign", 1)
    with prefect_at(server):
        made = run_certificate.certify(bench(ledger, GOOD), 2)
        assert made is not None and made.passed
        assert (made.looked_before, made.alpha) == (1, 0.05 / 6)
        run_certificate.path_of(ledger, made).unlink()
        assert run_certificate.certify(bench(ledger, GOOD), 2) == made, "made again from the same runs"
    uses = holdout_uses.uses(prepared)
    assert [use.campaign for use in uses] == ["an earlier campaign", ledger.campaign.campaign_id]
    assert uses[-1].passed and holdout_uses.charge(prepared, "later", 1)[1] == 0.05 / 12 + 0.05 / 6


def test_units_that_are_drawn_anew_are_not_charged(tmp_path: Path) -> None:
    ledger = CampaignSpec.of(environment=str(quadratic(tmp_path / "quad")), name="night", tracking="off").open()
    assert report_pool(ledger.environment) is None
