"""The process that runs a campaign, from taking its lock to releasing it; called a life.

A campaign has one life at a time. A killed life frees its lock. It leaves its heartbeat, so that its hours count, and
maybe processes, which the next life ends before it starts anything, and trials on other machines, which it adopts.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from environments.plugins import Refused
from tasks.store.ledger import Ledger
from tasks.system import interrupt, orphans
from tasks.system.clock import clock
from tasks.system.commands import identity

LOCK = "lock"
BEAT_SECONDS = 1.0
SWEEP_SECONDS = 5.0
"""How long the removal of a trial on another machine may take; after that it is left to the next sweep."""
NOTE_BYTES = 512
"""Fixed length of the note in the lock file, so that one write replaces it."""


class Life:
    """Hold a campaign while running it; Refused if another process does."""

    def __init__(self, ledger: Ledger, **facts: object) -> None:
        self.ledger = ledger
        self._facts = facts
        self._over = threading.Event()
        self._before = self._started = 0.0

    def __enter__(self) -> Life:
        self._signals = interrupt.deferred()
        self._lock = _open(lock_path(self.ledger))
        if not _take(self._lock):
            self._lock.close()
            raise Refused(f"campaign {self.ledger.campaign.name!r} is already running ({describe(self.ledger)})")
        self._before = spent(self.ledger)
        self._started, self._since = clock(), time.time()
        if not self._goes_on():
            self._stop_file.unlink(missing_ok=True)
        self._note()  # before what takes time: whoever stops the campaign now must not signal the life before
        ended = orphans.end(self.ledger.campaign.campaign_id)
        before = round(self._before, 3)
        whose = {"pid": os.getpid(), "identity": identity(os.getpid()), "host": platform.node()}
        self.ledger.event("life", **whose, spent_before=before, **self._facts)
        if ended:
            self.ledger.event("orphans", killed=ended)
        self._sweep()
        self._beat = threading.Thread(target=self._beats, name="beat", daemon=True)
        self._beat.start()
        self._signals.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        stopped = kind is KeyboardInterrupt and self.asked_to_stop
        if stopped:
            self._stop_file.unlink()
        self._signals.__exit__(None, None, None)
        self._sweep(own=True)
        self._over.set()
        self._beat.join()
        self._note()
        self._lock.close()
        if stopped:
            raise interrupt.StoppedForGood

    def _sweep(self, own: bool = False) -> None:
        """Remove trials on other machines that nobody follows any more. (own: those of this campaign, which ends)"""
        from tasks.remote import jobs

        wanted = jobs.is_of(self.ledger.campaign.campaign_id) if own else jobs.is_over
        if swept := jobs.sweep(wanted, SWEEP_SECONDS, given_up=False):
            self.ledger.event("remote", swept=swept)

    @property
    def spent(self) -> float:
        """Seconds that the campaign has run, over all lives."""
        return self._before + clock() - self._started

    @property
    def asked_to_stop(self) -> bool:
        return self._stop_file.exists()

    @property
    def _stop_file(self) -> Path:
        return self.ledger.path / "stop"

    def _goes_on(self) -> bool:
        """Whether no person began this life: its flow run was killed and is resumed, or the one before handed over.

        Then a request to stop that the last life did not come to still holds.
        """
        last: dict[str, Any] = {}
        for event in self.ledger.events():
            if event["event"] in ("life", "continued"):
                last = event
            elif event["event"] == "end":
                last = {}
        own = self._facts.get("flow_run_id")
        return last.get("event") == "continued" or (own is not None and last.get("flow_run_id") == own)

    def _note(self) -> None:
        """Write the holder and the time spent into the lock. Readers and kills see all or nothing."""
        holder = {
            "pid": os.getpid(), "identity": identity(os.getpid()), "host": platform.node(), "started": self._since,
            "spent": self.spent,
        }  # fmt: skip
        os.pwrite(self._lock.fileno(), f"{json.dumps(holder):<{NOTE_BYTES - 1}}\n".encode(), 0)

    def _beats(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._note()


def lock_path(ledger: Ledger) -> Path:
    return ledger.path / LOCK


def is_running(ledger: Ledger) -> bool:
    """Whether a process holds the campaign now."""
    return is_held(lock_path(ledger))


def end_of_the_search(ledger: Ledger, besides: Collection[str] = ("certify",)) -> dict[str, Any]:
    """The event that ended the last process that searched; empty while it runs, or if it was killed.

    Args:
        besides: What takes nothing back of how the search ended where it was cut off: `certify`, `rerun`.
    """
    last: dict[str, Any] = {}
    for event in ledger.events():
        if event["event"] == "life" and not any(what in event for what in besides):
            last = {}
        elif event["event"] == "end":
            last = event
    return last


def is_held(path: Path) -> bool:
    """Whether a process holds the campaign with this lock file now."""
    try:
        with path.open() as lock:  # for reading, since who only looks may not be allowed to write
            return not _take(lock, fcntl.LOCK_SH, tries=1)
    except FileNotFoundError:
        return False


@contextmanager
def left_alone(ledger: Ledger) -> Iterator[None]:
    """Keep a campaign from being run within the block; Refused if it is running."""
    with _open(lock_path(ledger)) as lock:
        if not _take(lock):
            raise _running(ledger)
        yield


def check_idle(ledger: Ledger) -> None:
    """Raises Refused if a process holds the campaign now: the campaign itself, a certificate, or a rerun."""
    if is_running(ledger):
        raise _running(ledger)


def _running(ledger: Ledger) -> Refused:
    name = ledger.campaign.name
    return Refused(f"campaign {name!r} is running ({describe(ledger)}): wait for its end, or `nightshift stop {name}`")


def _open(path: Path) -> IO[str]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")


def _take(lock: IO[str], kind: int = fcntl.LOCK_EX, tries: int = 20) -> bool:
    """Take the lock, with a moment's patience: `is_running` holds it for an instant."""
    for _ in range(tries):
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def holder(ledger: Ledger) -> dict[str, Any]:
    """pid, its identity, host, start (Unix time) and seconds `spent` by all lives, of the life now or the last one.

    Empty without one. A process that only looks, such as `nightshift prune`, holds the lock without a note.
    """
    try:
        return dict(json.loads(lock_path(ledger).read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def describe(ledger: Ledger) -> str:
    held = holder(ledger)
    since = time.strftime("%H:%M:%S", time.localtime(held["started"])) if held else "?"
    return f"process {held.get('pid', '?')} on {held.get('host', '?')} since {since}"


def spent(ledger: Ledger) -> float:
    """Seconds that all lives have run; a killed one counts up to its last heartbeat."""
    return float(holder(ledger).get("spent", 0.0))
