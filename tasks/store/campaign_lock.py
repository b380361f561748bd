"""The lock of a campaign, and the process that holds it: a life.

A campaign has one life at a time. The kernel frees the lock of a killed one. What it left are the trainings that it
had started, which the next life finds by their marker and ends before it starts anything, and `holder.json`, which
says who it was, and how long all lives have run. A copy of a campaign so has spent what the campaign had.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from environments.plugins import Refused
from tasks.store.ledger import Ledger
from tasks.system import interrupt, orphans
from tasks.system.clock import clock
from tasks.system.commands import identity
from tasks.system.files import write_atomic

LOCK, HOLDER, STOP = "lock", "holder.json", "stop"
BEAT_SECONDS = 1.0
PATIENCE_SECONDS = 1.0
"""Whoever looks whether a campaign runs holds its lock for an instant."""
SWEEP_SECONDS = 5.0
"""How long the removal of a trial on another machine may take; after that it is left to the next sweep."""
DEATHS = 10
"""Lives in a row that may end without a decided trial or a fresh run; then nobody resumes the campaign by itself."""


class CampaignLock:
    """Hold a campaign while running it. Refused if another process does.

    A process of the same flow run waits for its end instead: after an outage the Prefect server may resume a run whose
    process is alive.
    """

    def __init__(self, ledger: Ledger, flow_run_id: str | None = None, **facts: object) -> None:
        self.ledger = ledger
        self._facts = {"flow_run_id": flow_run_id, **facts}
        self._over = threading.Event()
        self._before = self._started = self._since = 0.0

    def __enter__(self) -> CampaignLock:
        self._signals = interrupt.deferred()
        self._lock = FileLock(self.ledger.path / LOCK)
        self._acquire()
        self._before, self._started, self._since = spent(self.ledger), clock(), time.time()
        lives = [event for event in self.ledger.events() if event["event"] in ("life", "end")]
        own = self._facts["flow_run_id"]
        is_resumed = own is not None and bool(lives) and lives[-1].get("flow_run_id") == own
        if not is_resumed:  # a person began this life, so that a request to stop the one before no longer holds
            self._stop_file.unlink(missing_ok=True)
        self._note()
        killed = orphans.end(self.ledger.campaign.campaign_id)
        self.ledger.event("life", **_own(), spent_before=round(self._before, 3), **self._facts)
        if killed:
            self.ledger.event("orphans", killed=killed)
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
        with suppress(OSError):
            self._note()
        self._lock.release()
        if stopped:
            raise interrupt.StoppedForGood

    @property
    def spent(self) -> float:
        """Seconds that the campaign has run, over all lives."""
        return self._before + clock() - self._started

    @property
    def asked_to_stop(self) -> bool:
        return self._stop_file.exists()

    def check_progress(self) -> None:
        """Refuse to go on where the last DEATHS lives decided no trial: nobody has to resume that for ever.

        A person's Retry, or `nightshift resume`, counts anew.
        """
        deaths = -1  # without this life
        for event in self.ledger.events():
            if event["event"] in ("settled", "slot free", "gave up"):
                deaths = -1
            elif event["event"] == "life":
                deaths += 1
        if deaths >= DEATHS:
            self.ledger.event("gave up", deaths=deaths)
            name = self.ledger.campaign.name
            raise Refused(
                f"campaign {name!r} died {deaths} times in a row without finishing a run, and is not resumed any more: "
                f"see its last trial (`nightshift logs {name}`) and the worker's log, mend that, then press Retry, or "
                f"`nightshift resume {name}`"
            )

    def _acquire(self) -> None:
        holder, own = self.ledger, self._facts["flow_run_id"]
        while True:
            try:
                self._lock.acquire(timeout=PATIENCE_SECONDS, poll_interval=0.02)
                return
            except Timeout:
                last = [event.get("flow_run_id") for event in holder.events() if event["event"] == "life"][-1:]
                if own is None or last != [own]:
                    raise Refused(
                        f"campaign {holder.campaign.name!r} is already running ({describe(holder)})"
                    ) from None
                interrupt.check()

    def _sweep(self, own: bool = False) -> None:
        """Remove trials on other machines that nobody follows any more. (own: those of this campaign, which ends)"""
        from tasks.remote import jobs

        wanted = jobs.is_of(self.ledger.campaign.campaign_id) if own else jobs.is_over
        if swept := jobs.sweep(wanted, SWEEP_SECONDS, given_up=False):
            self.ledger.event("remote", swept=swept)

    @property
    def _stop_file(self) -> Path:
        return self.ledger.path / STOP

    def _note(self) -> None:
        whose = {**_own(), "started": self._since, "spent": self.spent}
        write_atomic(self.ledger.path / HOLDER, json.dumps(whose) + "\n")

    def _beats(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with suppress(OSError):  # a full disk, whose next trial will tell
                self._note()


def _own() -> dict[str, Any]:
    """How this process is told from all others."""
    return {"pid": os.getpid(), "identity": identity(os.getpid()), "host": platform.node()}


def is_running(ledger: Ledger) -> bool:
    """Whether a process holds the campaign now."""
    return is_held(ledger.path / LOCK)


def is_held(path: Path) -> bool:
    """Whether a process holds the campaign with this lock file now. Who asks may not be allowed to write it."""
    try:
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
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
    name = ledger.campaign.name
    return Refused(f"campaign {name!r} is running ({describe(ledger)}): wait for its end, or `nightshift stop {name}`")


def holder(ledger: Ledger) -> dict[str, Any]:
    """pid, its identity, host, start (Unix time) and seconds `spent` of the present or last life; empty without one."""
    try:
        return dict(json.loads((ledger.path / HOLDER).read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def describe(ledger: Ledger) -> str:
    held = holder(ledger)
    since = time.strftime("%H:%M:%S", time.localtime(held["started"])) if held else "?"
    return f"process {held.get('pid', '?')} on {held.get('host', '?')} since {since}"


def spent(ledger: Ledger) -> float:
    """Seconds that all lives have run; a killed one counts up to its last heartbeat. Version 0.6 has it in the lock."""
    for file in (HOLDER, LOCK):
        with suppress(OSError, ValueError, KeyError, TypeError):
            return float(json.loads((ledger.path / file).read_text())["spent"])
    return 0.0
