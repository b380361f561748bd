"""What a campaign learns from earlier ones: whose trials, how many, and where they are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.plugins import Refused
from tasks.store import workspace
from tasks.store.earlier_campaigns import LEARNED, learned_from, lessons, lessons_json
from tasks.store.ledger import Ledger, Settings
from tasks.system.files import write_atomic
from tasks.trial import History
from tests.support.histories import search, tried
from tests.support.toy import QUADRATIC, quadratic

SETTINGS = Settings(overrides={}, proposer="tpe", options={}, seed=1, rule="greedy")


def quad(tmp_path: Path, name: str = "quad", toml: str = QUADRATIC) -> Environment:
    return environments.load(quadratic(tmp_path / "problems" / name, toml=toml))


def campaign(name: str, environment: Environment, history: History) -> Ledger:
    """A campaign of these trials."""
    ledger = Ledger.create(
        name, environment, source=str(environment.folder), settings=SETTINGS, isolation="none", spec=""
    )
    for trial in history:
        write_atomic(ledger.place(trial.number).trial, workspace.TRIAL.dump_json(trial).decode())
    return ledger


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


def test_only_what_can_be_learned_is_kept(tmp_path: Path) -> None:
    environment = quad(tmp_path)
    trial = tried((), 3.0, 4.0, reruns=[(0, 5.0)])
    run = replace(trial.runs[0], curve=(1.0,) * 20, error="the end")
    single = replace(trial.score.runs[0], units=(1.0,) * 500)
    score = replace(trial.score, runs=(single, *trial.score.runs[1:]), also={"length": 2.0})
    campaign("large", environment, (replace(trial, runs=(run, *trial.runs[1:]), score=score),))
    (lesson,) = learned_from(["large"], environment)
    assert (lesson.reruns, lesson.runs[0].curve, lesson.score.runs[0].units) == ((), (), ())
    assert lesson.runs[0].error == "the end"
    assert (lesson.score.values, lesson.score.also) == ((3.0, 4.0), {"length": 2.0})
    assert lesson.runs[0].seed == trial.runs[0].seed


MAXIMIZE = QUADRATIC.replace('direction = "minimize"', 'direction = "maximize"')
OTHER_SPACE = QUADRATIC.replace("[space.x]", "[space.y]").replace("{x}", "{y}")


@pytest.mark.parametrize(
    ("name", "toml", "why"),
    [
        ("other", QUADRATIC, "name other, this one quad"),
        ("quad", OTHER_SPACE, "parameters"),
        ("quad", MAXIMIZE, "direction maximize, this one minimize"),
    ],
)  # fmt: skip
def test_a_campaign_that_says_nothing_of_this_environment_is_refused(
    tmp_path: Path, name: str, toml: str, why: str
) -> None:
    campaign("old", quad(tmp_path / "before", name, toml), search(2))
    with pytest.raises(Refused, match=why):
        learned_from(["old"], quad(tmp_path))
