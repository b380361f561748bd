"""The lock of a campaign: one process at a time runs it. The time from a process's start to its end is a life.

The kernel frees the lock of a killed process. The trainings that it had started are found by their marker and ended by
the next life. Who runs the campaign, and for how long it has run, is read from its events.
"""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from filelock import FileLock, Timeout

from environments.plugins import Refused
from tasks.store.ledger import Ledger
from tasks.system import interrupt, orphans
from tasks.system.commands import identity

LOCK, STOP = "lock", "stop"
PATIENCE_SECONDS = 1.0
"""Whoever looks whether a campaign runs holds its lock for an instant."""
SWEEP_SECONDS = 5.0
"""How long the removal of a trial on another machine may take; after that it is left to the next sweep."""


class CampaignLock:
    """Hold a campaign while running it. Refused if another process does.

    A process of the same flow run waits for its end instead: after an outage the Prefect server may resume a run whose
    process is alive.
    """

    def __init__(self, ledger: Ledger, flow_run_id: str | None = None, **facts: object) -> None:
        self.ledger = ledger
        self._flow_run_id, self._facts = flow_run_id, facts
        self._lock = FileLock(ledger.path / LOCK)
        self._stop_file = ledger.path / STOP
        self._signals = interrupt.deferred()

    def __enter__(self) -> CampaignLock:
        self._acquire()
        if not self._is_held_by_us():
            self._stop_file.unlink(missing_ok=True)  # a person began this life: what stopped another no longer holds
        killed = orphans.end(self.ledger.campaign.campaign_id)
        who = {"identity": identity(os.getpid()), "host": platform.node(), "flow_run_id": self._flow_run_id}
        self.ledger.event("life", **who, spent_before=round(_lived(self.ledger)[0], 3), **self._facts)
        if killed:
            self.ledger.event("orphans", killed=killed)
        self._sweep()
        self._signals.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        stopped = kind is KeyboardInterrupt and self.asked_to_stop
        if stopped:
            self._stop_file.unlink()
        self._signals.__exit__(None, None, None)
        self._sweep(own=True)
        with suppress(OSError):  # a full disk, which is why it ends
            self.ledger.event("life over")
        self._lock.release()
        if stopped:
            raise interrupt.StoppedForGood

    @property
    def asked_to_stop(self) -> bool:
        return self._stop_file.exists()

    def _acquire(self) -> None:
        while True:
            try:
                self._lock.acquire(timeout=PATIENCE_SECONDS, poll_interval=0.02)
                return
            except Timeout:
                if not self._is_held_by_us():
                    raise _running(self.ledger) from None
                interrupt.check()

    def _is_held_by_us(self) -> bool:
        return self._flow_run_id is not None and holder(self.ledger).get("flow_run_id") == self._flow_run_id

    def _sweep(self, own: bool = False) -> None:
        """Remove trials on other machines that nobody follows any more. (own: those of this campaign, which ends)"""
        from tasks.remote import jobs

        wanted = jobs.is_of(self.ledger.campaign.campaign_id) if own else jobs.is_over
        if swept := jobs.sweep(wanted, SWEEP_SECONDS):
            self.ledger.event("remote", swept=swept)


def is_running(ledger: Ledger) -> bool:
    """Whether a process holds the campaign now. Who asks may not be allowed to write the lock."""
    with suppress(FileNotFoundError), (ledger.path / LOCK).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def left_alone(ledger: Ledger) -> Iterator[None]:
    """Keep a campaign from being run within the block; Refused if it is running."""
    try:
        with FileLock(ledger.path / LOCK, timeout=PATIENCE_SECONDS):
            yield
    except Timeout:
        raise _running(ledger) from None


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
    return seconds, last
