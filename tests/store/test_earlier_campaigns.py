"""What a campaign learns from earlier ones: whose trials, how many, and where they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.plugins import Refused
from flows.spec.campaign_spec import CampaignSpec
from tasks.store.earlier_campaigns import LEARNED, learned_from, lessons, lessons_json
from tasks.store.ledger import Ledger
from tasks.trial import History
from tests.support.histories import search
from tests.support.ledgers import filled
from tests.support.toy import QUADRATIC, quadratic


def quad(tmp_path: Path, toml: str = QUADRATIC) -> Environment:
    return environments.load(quadratic(tmp_path / "quad", toml=toml))


def campaign(name: str, environment: Environment, history: History) -> Ledger:
    """A campaign of these trials."""
    return filled(CampaignSpec.of(environment=str(environment.folder), name=name).open(), history)


def test_every_trial_comes_in_its_order_the_oldest_campaign_first_each_with_its_baseline(tmp_path: Path) -> None:
    environment = quad(tmp_path)
    first, second = search(4), search(6, seed=2)
    campaign("first", environment, first)
    campaign("second", environment, second)
    found = learned_from(["second", "first", "second"], environment)
    assert [trial.number for trial in found] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]
    assert [trial.score.value for trial in found] == [trial.score.value for trial in (*first, *second)]
    assert [trial.proposal for trial in found] == [trial.proposal for trial in (*first, *second)]
    (tmp_path / LEARNED).write_text(lessons_json(found))
    assert lessons(tmp_path) == found


def test_a_campaign_that_says_nothing_of_this_environment_is_refused(tmp_path: Path) -> None:
    other = QUADRATIC.replace("[space.x]", "[space.y]").replace("{x}", "{y}")
    campaign("old", quad(tmp_path / "before", toml=other), search(2))
    with pytest.raises(Refused, match="by y, this one"):
        learned_from(["old"], quad(tmp_path))
