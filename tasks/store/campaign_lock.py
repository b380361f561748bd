"""The lock of a campaign: one process at a time runs it. The time from a process's start to its end is a life.

The kernel frees the lock of a killed process. The trainings that it had started are found by their marker and ended by
the next life. Who runs the campaign, and for how long it has run, is read from its events.
"""

import fcntl
import os
import platform
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from filelock import FileLock, Timeout

from environments.plugins import Refused
from tasks.store.ledger import Ledger
from tasks.system import interrupt, orphans

LOCK, STOP = "lock", "stop"
PATIENCE_SECONDS = 1.0
"""Whoever looks whether a campaign runs holds its lock for an instant."""
SWEEP_SECONDS = 5.0
"""How long the removal of a trial on another machine may take; after that it is left to the next sweep."""


@contextmanager
def hold(ledger: Ledger, flow_run_id: str | None = None, **facts: object) -> Iterator[None]:
    """Hold a campaign while the block runs it. Refused if another process does.

    A process of the same flow run waits for its end instead: after an outage the Prefect server may resume a run whose
    process is alive.
    """
    stop_file = ledger.path / STOP
    with left_alone(ledger, flow_run_id):
        if not _is_held_by(ledger, flow_run_id):
            stop_file.unlink(missing_ok=True)  # a person began this life: what stopped another no longer holds
        before, killed = _lived(ledger)[0], orphans.end(ledger.campaign.campaign_id)
        who = {"identity": orphans.identity(os.getpid()), "host": platform.node(), "flow_run_id": flow_run_id}
        ledger.event("life", **who, spent_before=round(before, 3), **facts)
        if killed:
            ledger.event("orphans", killed=killed)
        _sweep(ledger)
        try:
            with interrupt.deferred():
                yield
            stop_file.unlink(missing_ok=True)  # it has ended as asked: a retry of the same run goes on
        except KeyboardInterrupt:
            if not asked_to_stop(ledger):
                raise
            stop_file.unlink()
            raise interrupt.StoppedForGood from None
        finally:
            _sweep(ledger, own=True)
            with suppress(OSError):  # a full disk, which is why it ends
                ledger.event("life over")


def asked_to_stop(ledger: Ledger) -> bool:
    return (ledger.path / STOP).exists()


def left_alone(ledger: Ledger, flow_run_id: str | None = None) -> AbstractContextManager[object]:
    """Keep a campaign from being run by others within the block, as `hold` does; Refused if it is running."""
    while True:
        try:
            return FileLock(ledger.path / LOCK).acquire(timeout=PATIENCE_SECONDS, poll_interval=0.02)
        except Timeout:
            if not _is_held_by(ledger, flow_run_id):
                raise _running(ledger) from None
            interrupt.check()


def _is_held_by(ledger: Ledger, flow_run_id: str | None) -> bool:
    return flow_run_id is not None and holder(ledger).get("flow_run_id") == flow_run_id


def _sweep(ledger: Ledger, own: bool = False) -> None:
    """Remove trials on other machines that nobody follows any more. (own: those of this campaign, which ends)"""
    from tasks.remote import jobs

    wanted = jobs.is_of(ledger.campaign.campaign_id) if own else jobs.is_over
    if swept := jobs.sweep(wanted, SWEEP_SECONDS):
        ledger.event("remote", swept=swept)


def is_running(ledger: Ledger) -> bool:
    """Whether a process holds the campaign now. Who asks may not be allowed to write the lock."""
    with suppress(FileNotFoundError), (ledger.path / LOCK).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def check_idle(ledger: Ledger) -> None:
    """Raises Refused if a process holds the campaign now: the campaign itself, a certificate, or a rerun."""
    if is_running(ledger):
        raise _running(ledger)


def _running(ledger: Ledger) -> Refused:
    name, life = ledger.campaign.name, holder(ledger)
    process = f"process {life.get('pid', '?')} on {life.get('host', '?')}"
    return Refused(f"campaign {name!r} is already running ({process}): wait for its end, or `nightshift stop {name}`")


def holder(ledger: Ledger) -> dict[str, Any]:
    """The event with which the present or last life began: pid, its identity, host, flow run; empty without one."""
    return next((event for event in reversed([*ledger.events()]) if event["event"] == "life"), {})


def spent(ledger: Ledger) -> float:
    """Seconds that all lives have run. One that was killed counts up to its last event."""
    seconds, last = _lived(ledger)
    return seconds + (time.time() - last if last and is_running(ledger) else 0.0)


def _lived(ledger: Ledger) -> tuple[float, float]:
    """Seconds from the first to the last event of each life together, and when the last of these events was."""
    seconds, pid, last = 0.0, None, 0.0
    for event in ledger.events():
        if event["event"] == "life":
            pid, last = event.get("pid"), event["time"]
        elif event.get("pid", pid) == pid:  # not of another process, such as a command; version 0.6 did not say whose
            seconds += event["time"] - (last or event["time"])
            last = event["time"]
            pid = None if event["event"] == "life over" else pid  # the next with this pid is another process
    return seconds, last
