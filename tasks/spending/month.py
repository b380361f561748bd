"""What all campaigns of a home spent in a month: `spending.jsonl` in the home, which outlives deleted campaigns.

Each line is the account of one campaign, or of one `try`, `duel` or `calibrate`, at a moment: what it has spent since
it began, and what it has promised, which is the most that it may still spend before it writes again. A promise is made
under a lock, before anything is started, and only while the cap allows it beside the promises of all campaigns that
run. So two campaigns never spend the same dollar. The promise of a campaign that does not run is void, but for what a
killed one had spent of it.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from environments.plugins import Refused
from tasks.spending.prices import FILE, prices
from tasks.spending.spent import note_removed_late, spent
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system.files import append_line

if TYPE_CHECKING:
    from filelock import FileLock

ACCOUNTS, LOCK = "spending.jsonl", ".spending.lock"
CENT = 0.01


@dataclass(frozen=True)
class CampaignAccount:
    """One campaign at one moment."""

    time: float
    """Unix time, in seconds."""
    campaign: str
    campaign_id: str
    usd: float
    """What it has spent since it began, as far as prices are known."""
    promised: float = 0.0
    unknown: bool = False
    """Whether something was bought whose price is unknown."""


CAMPAIGN_ACCOUNT = TypeAdapter(CampaignAccount)


@dataclass(frozen=True)
class Month:
    """The spending of a calendar month."""

    name: str
    """Such as 2026-11."""
    usd: float
    """As far as prices are known."""
    promised: float
    """By campaigns that run."""
    cap: float | None
    unknown: bool

    @property
    def left(self) -> float | None:
        """USD that may still be promised; None without a cap."""
        return None if self.cap is None else max(self.cap - self.usd - self.promised, 0.0)

    @property
    def words(self) -> str:
        """Such as `12.50 of 200 USD in 2026-11`."""
        of = "" if self.cap is None else f" of {self.cap:g}"
        more = [f"{self.promised:.2f} more promised to campaigns that run"] if self.promised >= 0.005 else []
        more += ["and what has no known price"] if self.unknown else []
        return f"{self.usd:.2f}{of} USD in {self.name}" + (f" ({', '.join(more)})" if more else "")


def month(home: Path, now: float | None = None, without: str = "") -> Month:
    """The current month. Promises of the campaign with the id `without` are left out."""
    now = time.time() if now is None else now
    last: dict[str, CampaignAccount] = {}
    usd, unknown, name = 0.0, False, _name(now)
    for account in _accounts(home):
        before = last.get(account.campaign_id)
        if _name(account.time) == name:
            usd += max(account.usd - (before.usd if before else 0.0), 0.0)
            unknown |= account.unknown and not (before and before.unknown)
        last[account.campaign_id] = account
    promises = (one for one in last.values() if one.promised > 0 and one.campaign_id != without)
    promised = sum(one.promised for one in promises if _runs(home, one))
    return Month(name, usd, promised, prices(home).usd_per_month, unknown)


def left_to(ledger: Ledger, usd: float, now: float | None = None) -> float | None:
    """USD that may be promised to a campaign that has spent `usd`, written or not; None without a cap."""
    home, own = ledger.path.parent, ledger.campaign.campaign_id
    left, before = month(home, now, without=own).left, _last(home, own)
    return None if left is None else max(left - max(usd - (before.usd if before else 0.0), 0.0), 0.0)


def promise(ledger: Ledger, usd: float, more: float, unknown: bool = False) -> Month | None:
    """Write what a campaign has spent, and promise it that much more, if the cap allows that.

    Returns:
        The month without this campaign's promise, if the cap does not allow it; its earlier promise stays. Else None.
    """
    home, own = ledger.path.parent, ledger.campaign.campaign_id
    usd, more = round(usd, 6), round(more, 6)
    if not (usd or more or unknown or (home / ACCOUNTS).exists()):
        return None
    with _lock(home):
        before = _last(home, own)
        now = CampaignAccount(time.time(), ledger.campaign.name, own, usd, more, unknown)
        if before and _is_covered(before, now):
            return None
        if more:  # else there is nothing that a cap could refuse
            _close_killed(home, without=own)
            left = left_to(ledger, usd, now.time)
            if left is not None and more > left:
                _write(home, replace(now, promised=before.promised if before else 0.0))
                return month(home, now.time, without=own)
        if before or usd or more or unknown:
            _write(home, now)
        return None


def _lock(home: Path) -> FileLock:
    from filelock import FileLock  # here, since most only read

    return FileLock(home / LOCK)


def note(home: Path, what: str, key: str, usd: float, unknown: bool = False) -> None:
    """Add what was spent outside of campaigns.

    Args:
        key: Names what it was spent on; several notes of one are added up.
    """
    if not (usd or unknown):
        return
    with _lock(home):
        before = _last(home, key)
        unknown |= before.unknown if before else False
        total = round(usd + (before.usd if before else 0.0), 6)
        _write(home, CampaignAccount(time.time(), what, key, total, 0.0, unknown))


def short(found: Month, need: str, home: Path) -> str:
    """That the month's cap leaves too little, with what to do."""
    left = f"{found.left or 0.0:.2f} USD are left of the monthly cap: {found.words}"
    return f"{need}, and {left}. Raise usd_per_month in {home / FILE}, or wait for the next month"


def _close_killed(home: Path, without: str) -> None:
    """Write what killed campaigns spent of their promises, which are void: else others would spend it once more."""
    last = {one.campaign_id: one for one in _accounts(home) if one.campaign_id != without}
    for account in last.values():
        if account.promised > 0 and not _runs(home, account):
            _write(home, replace(_now(account), time=time.time(), promised=0.0))


def _now(account: CampaignAccount) -> CampaignAccount:
    """The account as of now; as it was last written where the campaign is deleted or damaged."""
    try:
        ledger = Ledger.open(account.campaign)
        if ledger.campaign.campaign_id != account.campaign_id:
            return account
        note_removed_late(ledger)
        found = spent(ledger, ledger.history())
    except (Refused, OSError, ValueError, LookupError, TypeError):
        return account
    unknown = account.unknown or bool(found.unknown)
    return replace(account, usd=max(round(found.known_usd, 6), account.usd), unknown=unknown)


def _is_covered(before: CampaignAccount, now: CampaignAccount) -> bool:
    """Whether the campaign's last line still says what it may cost at most: cents moved from promised to spent."""
    same = abs(now.usd + now.promised - before.usd - before.promised) < CENT / 2 and now.unknown == before.unknown
    return same and (now.promised > 0 or now.usd == before.usd)


def _write(home: Path, account: CampaignAccount) -> None:
    append_line(home / ACCOUNTS, json.dumps(asdict(account)))


def _accounts(home: Path) -> Iterator[CampaignAccount]:
    path = home / ACCOUNTS
    for line in path.read_text().splitlines() if path.is_file() else ():
        with suppress(ValidationError):  # cut short by a kill
            yield CAMPAIGN_ACCOUNT.validate_json(line)


def _last(home: Path, key: str) -> CampaignAccount | None:
    """The newest account of a campaign, or of a `try`, `duel` or `calibrate`."""
    return next((one for one in reversed([*_accounts(home)]) if one.campaign_id == key), None)


def _runs(home: Path, account: CampaignAccount) -> bool:
    """Whether the campaign of an account runs now, or a machine that it rented is not removed yet."""
    from tasks.remote import jobs  # whoever reads what was spent rents nothing

    if jobs.are_left(home, account.campaign_id):
        return True
    path = home / account.campaign
    try:
        is_it = json.loads((path / "campaign.json").read_text()).get("campaign_id") == account.campaign_id
    except (OSError, ValueError):  # deleted since, or being deleted
        return False
    return is_it and campaign_lock.is_held(path / campaign_lock.LOCK)


def _name(moment: float) -> str:
    """The month of a moment, by this machine's clock on the wall."""
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).astimezone().strftime("%Y-%m")
