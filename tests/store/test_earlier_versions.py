"""Campaigns that an earlier version began.

campaigns-0.1.0.tar.xz holds three of commit af3c92b, each killed with kill -9: `begun-with-0.1.0` (a judge command)
in its fourth trial of seven, `cartpole-...` (the control judge) and `arithmetic-...` (the text judge) at their start.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from environments import plugins
from environments.judges.reported import Reported
from environments.plugins import Refused
from tasks.store import judge_code
from tasks.store.judge_code import JudgeVersion
from tasks.store.ledger import Ledger, Settings, measure
from tests.support.toy import nightshift, status

STORED = Path(__file__).with_name("campaigns-0.1.0.tar.xz")
NAMES = ("begun-with-0.1.0", "cartpole-begun-with-0.1.0", "arithmetic-begun-with-0.1.0")


@pytest.fixture
def stored(home: Path) -> Path:
    """A home with the campaigns of 0.1.0."""
    with tarfile.open(STORED) as archive:
        archive.extractall(home, filter="data")
    return home


@pytest.mark.parametrize("name", NAMES)
def test_the_digest_of_a_campaign_of_0_1_0_is_still_the_same(stored: Path, name: str) -> None:
    ledger = Ledger.open(name)
    settings = ledger.campaign.model_dump(include=set(Settings.model_fields))
    assert measure(ledger.path, ledger.environment, settings) == ledger.campaign.digest


@pytest.mark.slow
def test_a_campaign_of_0_1_0_resumes_and_keeps_what_it_had(stored: Path, server: str, empty_mlflow: Path) -> None:
    shutil.copy(empty_mlflow, stored / "mlflow.db")
    before = {trial.number: trial for trial in Ledger.open(NAMES[0]).history()}
    assert set(before) == {0, 1, 2}
    done = nightshift("resume", NAMES[0], server=server)
    assert done.returncode == 0, done.stdout + done.stderr
    after = {trial.number: trial for trial in Ledger.open(NAMES[0]).history()}
    assert set(after) == set(range(7))
    assert {number: after[number] for number in before} == before
    assert status(NAMES[0])["state"] == "finished"


def test_a_judge_that_scores_differently_now_is_refused_with_the_version_to_finish_with(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(NAMES[0])
    old, *_ = judge_code.versions(ledger.environment.judge)
    now = JudgeVersion("9.9.9", (judge_code.bytes_digest(ledger.environment.judge),))
    monkeypatch.setattr(judge_code, "versions", lambda _: (now,))
    monkeypatch.setattr(
        "tasks.store.ledger.versions", lambda _: (JudgeVersion(old.version, old.digests[:1], "af3c92b"), now)
    )
    with pytest.raises(Refused, match=r"0\.1\.0.*git checkout af3c92b"):
        ledger.verify()


def test_a_changed_frozen_file_is_refused_without_naming_a_version(stored: Path) -> None:
    ledger = Ledger.open(NAMES[0])
    judge = ledger.path / "environment/judge.py"
    judge.chmod(0o644)
    judge.write_text(judge.read_text() + "#\n")
    with pytest.raises(Refused, match="frozen files have changed"):
        ledger.verify()


def test_the_digest_of_a_judge_covers_the_judge_that_it_extends(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(path: Path) -> bytes:
        read.append(path.name)
        return b""

    monkeypatch.setattr(Path, "read_bytes", noted)
    judge_code.bytes_digest(Reported())
    assert read[:2] == ["reported.py", "command.py"] and read.count("command.py") == 1


@pytest.mark.parametrize("name", ["cartpole", "quadratic", "arithmetic"])
def test_the_present_code_of_every_judge_is_in_its_last_table(stored: Path, name: str) -> None:
    """When this fails, say in environments/judges/versions.toml whether the change keeps scores."""
    campaign = next(found for found in NAMES if Ledger.open(found).campaign.environment == name)
    judge = Ledger.open(campaign).environment.judge
    *earlier, present = judge_code.versions(judge)
    assert judge_code.bytes_digest(judge) == present.digests[-1]
    assert all(version.commit for version in earlier)


def test_every_bundled_judge_has_a_table(stored: Path) -> None:
    assert set(judge_code._listed()) == set(plugins.names("environments.judges"))
