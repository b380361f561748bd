"""The verbs about what campaigns leave: prune, sync."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

from cyclopts import Parameter
from rich.filesize import decimal

from environments.plugins import Refused
from flows.cli.options import Json, switch
from flows.cli.prune import free
from flows.status import state, stored_spec
from flows.views import terminal
from tasks.remote import jobs
from tasks.store import campaign_lock
from tasks.store.ledger import FORMAT, Ledger, readable
from tasks.system.home import home
from tasks.tracking import sync as tracking
from tasks.tracking.connection import locate

T = TypeVar("T")


def prune(
    campaign: str | None = None,
    /,
    *,
    keep: Annotated[
        Literal["champions", "kept"],
        Parameter("--keep", help="Trials whose files stay: champions only, or all that were kept."),
    ] = "champions",
    dry_run: Annotated[bool, switch("--dry-run", "Only print what would be deleted.")] = False,
    json: Json = False,
) -> int:
    """Delete the large files of trials of CAMPAIGN (default: every campaign that is not running).

    Trials on other machines that nobody follows are removed there, too.

    Example: nightshift prune --dry-run
    """
    wanted = jobs.is_of(Ledger.open(campaign).campaign.campaign_id) if campaign else lambda job: True
    if dry_run:
        lines = [f"would remove {job.key} at {job.trainer}" for job in jobs.unfollowed() if wanted(job)]
    else:
        lines = [*jobs.sweep(wanted)]
    for line in lines:
        print(line, file=sys.stderr if json else sys.stdout)
    results, failed = _each(campaign, lambda ledger: free(ledger, keep == "kept", dry_run))
    if json:
        terminal.print_json([asdict(pruned) for pruned in results])
        return int(failed)
    for pruned in results:
        print(f"{'would free' if dry_run else 'freed'} {pruned}")
    if len(results) != 1:
        print(f"{decimal(sum(pruned.bytes for pruned in results))} in all")
    return int(failed)


def sync(campaign: str | None = None, /, *, json: Json = False) -> int:
    """Send waiting records of CAMPAIGN (default: all) to MLflow. A running one does so itself after each trial.

    Example: nightshift sync
    """
    if campaign:
        Ledger.open(campaign).check_version()
    results, failed = _each(campaign, _send)
    sent = [result for result in results if result]
    lacking = [result for result in sent if result["sent"] or result["problem"]]
    if json:
        terminal.print_json(sent)
    elif not lacking:
        print("MLflow has everything")
    for result in lacking if not json else ():
        why = f", {result['waiting']} still waiting: {result['problem']}" if result["problem"] else ""
        print(terminal.clean(f"{result['campaign']}: {result['sent']} sent{why}"))
    return int(failed or any(result["problem"] for result in sent))


def _send(ledger: Ledger) -> dict[str, Any] | None:
    """Record what MLflow and W&B lack of a campaign; None if it is of an earlier version.

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
    waiting = tracking.waiting(ledger, ledger.history())
    return {"campaign": ledger.campaign.name, "sent": done.sent, "waiting": waiting, "problem": done.problem}


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
