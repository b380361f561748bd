"""The verbs about this machine and what campaigns leave on it: prune, sync, doctor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

import environments
from environments.plugins import Refused
from flows.cli import consent
from flows.cli.doctor import check_machine
from flows.cli.options import Json, Settings, Trust
from flows.cli.prune import free
from flows.cli.set_option import overrides_only
from flows.server import server_process
from flows.status import state, stored_spec
from flows.views import terminal
from tasks.remote import jobs
from tasks.store import campaign_lock
from tasks.store.ledger import FORMAT, Ledger, readable
from tasks.system.home import home
from tasks.tracking import sync as tracking
from tasks.tracking.connection import locate

T = TypeVar("T")
MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "bold red")}


def prune(campaign: str | None = None, /, *, dry_run: bool = False) -> int:
    """Delete the large files of trials of CAMPAIGN (default: every campaign that is not running).

    Trials on other machines that nobody follows are removed there, too.

    Example: nightshift prune --dry-run

    Args:
        dry_run: Only print what would be deleted.
    """
    wanted = jobs.is_of(Ledger.open(campaign).campaign.campaign_id) if campaign else lambda job: True
    if dry_run:
        lines = [f"would remove {job.key} at {job.trainer}" for job in jobs.unfollowed() if wanted(job)]
    else:
        lines = [*jobs.sweep(wanted)]
    print(*lines, sep="\n", end="\n" * bool(lines))
    results, failed = _each(campaign, lambda ledger: free(ledger, dry_run))
    for one in results:
        kept = ", ".join(map(str, one.kept)) or "none"
        print(
            f"{'would free' if dry_run else 'freed'} {decimal(one.bytes)} of {one.campaign}; kept whole: trial {kept}"
        )
        if one.unsent:
            print(f"  {len(one.unsent)} wait for MLflow: nightshift sync {one.campaign}")
    return int(failed)


def sync(campaign: str | None = None, /) -> int:
    """Send waiting records of CAMPAIGN (default: all) to MLflow. A running one does so itself after each trial.

    Example: nightshift sync
    """
    if campaign:
        Ledger.open(campaign).check_version()
    results, failed = _each(campaign, _send)
    for name, problem in filter(None, results):
        print(terminal.clean(f"{name}: {problem or 'MLflow has everything'}"))
        failed |= bool(problem)
    return int(failed)


def doctor(*, for_: str | None = None, set_: Settings = None, trust: Trust = False, json: Json = False) -> int:
    """Check whether this machine is ready, for one environment too. Changes nothing.

    Example: nightshift doctor --for gsm8k

    Args:
        for_: Also check whether a campaign of this environment can run here.
    """
    if for_ is None and (set_ or trust):
        raise Refused("--set and --trust are about an environment: name it with --for ENVIRONMENT")
    checks = check_machine()
    if for_ is not None and checks["home"].state != "bad":  # else nothing can run, and the report says why
        server_process.settle_in(home())  # before Prefect, which the next line imports
        from flows.cli.doctor_for import check_environment

        overrides = overrides_only(set_ or [])
        consent.ask_about(for_, overrides, trust)
        checks |= check_environment(environments.named(for_, overrides), home())
    bad = sum(check.state == "bad" for check in checks.values())
    if json:
        documents = [{"name": name, **check._asdict()} for name, check in checks.items()]
        terminal.print_json({"healthy": not bad, "checks": documents})
        return 1 if bad else 0
    table = Table.grid(padding=(0, 2))
    for name, check in checks.items():
        mark, style = MARKS[check.state]
        fact = f"{terminal.clean(check.fact)} {f'→ {terminal.clean(check.remedy)}' * bool(check.remedy)}".rstrip()
        table.add_row(Text(mark, style), name, Text(fact))
    terminal.put(terminal.console(), table)
    print(f"{bad} thing{'s' * (bad > 1)} to fix" if bad else "healthy")
    return 1 if bad else 0


def _send(ledger: Ledger) -> tuple[str, str] | None:
    """Record what MLflow and W&B lack of a campaign; its name, and why some still waits. None if it is of an earlier
    version.

    Raises:
        Refused: it would be recorded elsewhere than before.
    """
    if ledger.campaign.format != FORMAT:
        return None
    stated, before = stored_spec(ledger).get("tracking"), tracking.last(ledger).store
    store = locate(stated, home())
    if not stated and before and before != str(store):
        raise Refused(
            f"campaign {ledger.campaign.name!r} is recorded in {before}, and from here its records would go to "
            f"{store or 'nowhere'}: set MLFLOW_TRACKING_URI as where it ran, or "
            f"`nightshift resume {ledger.campaign.name} --tracking ADDRESS`"
        )
    done = tracking.sync(ledger, store, state(ledger))
    waits = f"{tracking.waiting(ledger, ledger.history())} still waiting: {done.problem}" if done.problem else ""
    return ledger.campaign.name, waits


def _each(campaign: str | None, act: Callable[[Ledger], T]) -> tuple[list[T], bool]:
    """What was done for a campaign, or for every one that is not running, and whether one was left alone for a fault.

    Raises:
        Refused: the named one is running, or cannot be read.
    """
    if campaign:
        ledger = Ledger.open(campaign)
        campaign_lock.check_idle(ledger)
        return [act(ledger)], False
    results, failed = list[T](), False
    for ledger in readable():
        if campaign_lock.is_running(ledger):
            print(f"{ledger.campaign.name}: left alone, it is running", file=sys.stderr)
            continue
        try:
            results.append(act(ledger))
        except Refused as fault:
            failed = True
            print(f"{ledger.campaign.name}: left alone: {fault}", file=sys.stderr)
    return results, failed
