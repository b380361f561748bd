"""Campaigns that an earlier version began, or whose files have changed since.

campaigns-0.1.0.tar.xz holds three of commit af3c92b, each killed with kill -9: `begun-with-0.1.0` (a judge command)
in its fourth trial of seven, `cartpole-...` (the control judge) and `arithmetic-...` (the text judge) at their start.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from environments.judges.reported import Reported
from environments.plugins import Refused
from flows.views.status import document
from tasks.store.judge_code import judge_digest
from tasks.store.ledger import Ledger
from tests.support.ledgers import created
from tests.support.toy import nightshift

STORED = Path(__file__).with_name("campaigns-0.1.0.tar.xz")
NAMES = ("begun-with-0.1.0", "cartpole-begun-with-0.1.0", "arithmetic-begun-with-0.1.0")


@pytest.fixture
def stored(home: Path) -> Path:
    """A home with the campaigns of 0.1.0."""
    with tarfile.open(STORED) as archive:
        archive.extractall(home, filter="data")
    return home


@pytest.mark.parametrize("name", NAMES)
def test_a_campaign_of_0_1_0_can_be_read_and_is_not_resumed(stored: Path, name: str) -> None:
    ledger = Ledger.open(name)
    assert [row["trial"] for row in document(ledger)["trials"]] == ([0, 1, 2] if name == NAMES[0] else [])
    with pytest.raises(Refused, match=r"Nightshift 0\.1\.0 began it"):
        ledger.verify()


@pytest.mark.slow
def test_the_commands_that_only_read_take_a_campaign_of_0_1_0(stored: Path) -> None:
    for verb in (("status", NAMES[0]), ("list",), ("report", NAMES[0])):
        done = nightshift(*verb)
        assert done.returncode == 0, done.stderr


def test_a_campaign_goes_on_until_the_code_of_its_judge_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = created(tmp_path)
    ledger.verify()
    monkeypatch.setattr("tasks.store.ledger.judge_digest", lambda _: "another")
    with pytest.raises(Refused, match="the code of its judge"):
        ledger.verify()


def test_the_digest_of_a_judge_covers_the_judge_that_it_extends(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(path: Path) -> bytes:
        read.append(path.name)
        return b""

    monkeypatch.setattr(Path, "read_bytes", noted)
    judge_digest(Reported())
    assert read[:2] == ["reported.py", "command.py"] and read.count("command.py") == 1
