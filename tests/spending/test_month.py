"""What a home's campaigns spend in a month, and who gets the last dollar."""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from environments.plugins import Refused
from tasks.spending.month import ACCOUNTS, Month, month, promise
from tasks.spending.prices import FILE, prices
from tasks.store.campaign_lock import CampaignLock
from tasks.store.ledger import Ledger
from tests.support.ledgers import created

DAY = 24 * 3600.0


def capped(home: Path, usd: float) -> None:
    home.mkdir(exist_ok=True)
    (home / FILE).write_text(f"usd_per_month = {usd}\n")


@pytest.fixture
def two(tmp_path: Path, home: Path) -> tuple[Ledger, Ledger]:
    capped(home, 10)
    return created(tmp_path, "one"), created(tmp_path, "two")


def short(found: Month | None) -> float | None:
    assert found is not None
    return found.left


def test_without_a_file_there_is_no_cap_and_no_price(home: Path) -> None:
    assert prices(home).usd_per_month is None and prices(home).of("here") == 0.0
    assert month(home).left is None and month(home).words.startswith("0.00 USD in ")


def test_a_price_is_of_where_trials_run(home: Path) -> None:
    home.mkdir()
    (home / FILE).write_text("[usd_per_hour]\nhere = 0.5\ngpu-pair = 5\n'trial/box' = 7\n")
    stated = prices(home)
    assert [stated.of(launch) for launch in ("here", "gpu-pair", "trial/gpu-pair", "box", "other")] == [0.5, 5, 5, 7, 0]


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("usd_per_month = -1\n", "usd_per_month"),
        ("usd_per_month = inf\n", "usd_per_month"),
        ("usd_per_moth = 1\n", "usd_per_month"),
        ("usd_per_hour = 5\n", "usd_per_hour"),
        ("[usd_per_hour]\nhere = 'five'\n", "usd_per_hour.here"),
        ("usd_per_month\n", "not TOML"),
    ],
)
def test_a_budget_that_cannot_be_read_is_refused_with_its_key(home: Path, text: str, keyword: str) -> None:
    home.mkdir()
    (home / FILE).write_text(text)
    with pytest.raises(Refused, match=keyword):
        prices(home)


def test_the_last_dollar_is_promised_once(two: tuple[Ledger, Ledger], home: Path) -> None:
    one, other = two
    with CampaignLock(one), CampaignLock(other):
        assert promise(one, 0.0, 6.0) is None
        assert short(promise(other, 0.0, 6.0)) == 4.0
        assert promise(other, 0.0, 4.0) is None
        assert month(home).left == 0.0
        assert promise(one, 5.0, 1.0) is None, "its own promise stands"
        assert promise(one, 5.5, 0.0) is None
        assert month(home).usd == 5.5 and month(home).promised == 4.0
    assert month(home).promised == 0.0, "they do not run any more"


def test_of_many_that_ask_at_once_only_as_many_get_it_as_the_cap_allows(tmp_path: Path, home: Path) -> None:
    capped(home, 10)
    ledgers = [created(tmp_path, f"n-{n}") for n in range(5)]
    refused: list[str] = []
    barrier = threading.Barrier(len(ledgers))

    def ask(ledger: Ledger) -> None:
        barrier.wait()
        if promise(ledger, 0.0, 3.0):
            refused.append(ledger.campaign.name)

    threads = [threading.Thread(target=ask, args=(ledger,)) for ledger in ledgers]
    with ExitStack() as running:
        for ledger in ledgers:
            running.enter_context(CampaignLock(ledger))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 2 and month(home).left == 1.0


def test_a_deleted_campaign_does_not_free_its_money(two: tuple[Ledger, Ledger], home: Path, tmp_path: Path) -> None:
    promise(two[0], 7.0, 1.0)
    shutil.rmtree(two[0].path)
    assert month(home).usd == 7.0 and month(home).promised == 0.0
    again = created(tmp_path, "one")
    with CampaignLock(again):
        assert short(promise(again, 0.0, 4.0)) == 3.0, "a new campaign of the same name is another one"


def test_each_dollar_counts_in_the_month_in_which_it_was_noted(two: tuple[Ledger, Ledger], home: Path) -> None:
    now = time.mktime((2026, 11, 15, 12, 0, 0, 0, 0, -1))
    lines = [
        (now - 40 * DAY, "a", 3.0),
        (now - DAY, "a", 5.0),
        (now, "a", 5.0),
        (now, "b", 1.0),
        (now + 40 * DAY, "a", 9.0),
    ]
    with (home / ACCOUNTS).open("w") as file:
        for at, which, usd in lines:
            file.write(json.dumps({"time": at, "campaign": which, "campaign_id": which, "usd": usd}) + "\n")
        file.write('{"time": 17')  # cut short by a kill
    assert month(home, now).usd == 3.0
    assert month(home, now).name == "2026-11"


def test_a_line_is_written_only_when_something_was_spent_or_promised(two: tuple[Ledger, Ledger], home: Path) -> None:
    promise(two[0], 0.0, 0.0)
    assert not (home / ACCOUNTS).exists()
    for spent in (0.0, 0.001, 0.5):
        promise(two[0], spent, 2.0 - spent)
    assert len((home / ACCOUNTS).read_text().splitlines()) == 1, "the sum of spent and promised is the same"
    promise(two[0], 0.5, 2.0)
    promise(two[0], 0.6, 0.0)
    assert month(home).usd == 0.6


def test_what_has_no_known_price_is_said(two: tuple[Ledger, Ledger], home: Path) -> None:
    promise(two[0], 1.0, 0.0, unknown=True)
    assert "no known price" in month(home).words and month(home).usd == 1.0
