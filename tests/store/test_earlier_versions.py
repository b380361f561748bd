"""Campaigns that an earlier version began are shown, taken along and learned from, and not gone on with.

campaigns-0.6.tar.xz is of commit 12a8a023: three trials, a certificate, trial 1 run again, and a further trial. It was
killed with kill -9 in the training after those.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from importlib import import_module
from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.judges.command import Command
from environments.plugins import Refused
from flows.export.folder import export
from flows.report.page import REPORT, write_report
from flows.spec.campaign_spec import CampaignSpec
from tasks.store.earlier_campaigns import LEARNED, learned_from, lessons, lessons_json
from tasks.store.ledger import Ledger, judge_digest
from tasks.trial import History
from tests.support.histories import search
from tests.support.ledgers import filled
from tests.support.toy import QUADRATIC, nightshift, quadratic, status, told

TRIALS = [0, 1, 2, 3, 4]


@pytest.fixture
def old(home: Path) -> Ledger:
    """A campaign of format 1."""
    with tarfile.open(Path(__file__).with_name("campaigns-0.6.tar.xz")) as archive:
        archive.extractall(home, filter="data")
    return Ledger.open("begun-with-0.6")


def test_a_campaign_of_an_earlier_version_is_shown_and_exported(old: Ledger, tmp_path: Path) -> None:
    name = old.campaign.name
    found = status(name)
    assert (found["state"], [row["trial"] for row in found["trials"]]) == ("interrupted", TRIALS)
    assert found["spent"]["seconds"] > 0 and all(row["score"] is not None for row in found["trials"])
    assert (found["trials"][1]["attempt"], found["certificate"]["trial"]) == (2, 3)
    rows = json.loads(told("status", "--all", "--json"))
    assert name in {row["campaign"] for row in rows} and name in told("status", name)
    write_report(old)
    assert name in (old.path / REPORT).read_text()
    assert (export(old, tmp_path / "taken") / "result.json").is_file()


def test_resume_and_rerun_refuse_it_with_the_version_and_leave_it_as_it_is(old: Ledger, server: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in old.path.rglob("*") if path.is_file()}
    for verb in (("resume", old.campaign.name), ("rerun", old.campaign.name, "1")):
        done = nightshift(*verb, server=server)
        assert done.returncode == 2 and f"was begun by Nightshift {old.campaign.version}" in done.stderr, done.stderr
    assert {path: path.stat().st_mtime_ns for path in old.path.rglob("*") if path.is_file()} == before


def test_a_new_campaign_learns_from_it(old: Ledger, tmp_path: Path) -> None:
    source = tmp_path / old.campaign.environment
    shutil.copytree(old.path / "environment", source)
    new = CampaignSpec.of(environment=str(source), name="new", advanced={"learn_from": [old.campaign.name]}).open()
    assert [trial.number for trial in lessons(new.path)] == TRIALS


def test_a_campaign_goes_on_until_the_code_of_its_judge_changes(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.verify()
    monkeypatch.setattr("tasks.store.ledger.judge_digest", lambda _: "another")
    with pytest.raises(Refused, match="the code of its judge"):
        ledger.verify()


def test_the_code_of_a_judge_is_its_own_file_and_what_it_extends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "judge_of_my_own.py"
    file.write_text("from environments.judges.command import Command\nclass Mine(Command): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    judge = import_module(file.stem).Mine.model_construct()
    before = judge_digest(judge)
    file.write_text(file.read_text() + "# another\n")
    assert len({before, judge_digest(judge), judge_digest(Command.model_construct())}) == 3


# What a campaign learns from earlier ones: whose trials, how many, and where they are kept.


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
