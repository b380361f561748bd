"""`nightshift stop`: end a running campaign, which can be resumed."""

from __future__ import annotations

import os
import platform
import signal
import time

from environments.plugins import Refused
from flows.status import state
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system.commands import identity

END_SECONDS = 60.0
"""How long `--now` waits for the campaign's process to end."""


def stop(name: str, now: bool) -> int:
    """Stop a campaign after the current trial; with `now`, interrupt it and wait for its end."""
    ledger = Ledger.open(name)
    if not campaign_lock.is_running(ledger):
        raise Refused(f"campaign {name!r} is not running (it is {state(ledger)})")
    holder = campaign_lock.holder(ledger)
    if not holder:
        raise Refused(f"campaign {name!r} is about to begin, or is looked at: try again in a moment")
    if now and holder["host"] != platform.node():
        raise Refused(
            f"campaign {name!r} runs on {holder['host']}: run `nightshift stop {name} --now` there, or leave out --now"
        )
    if now and not _lives(holder["pid"], holder["identity"]):
        raise Refused(f"campaign {name!r} is looked at by another command, such as prune: try again in a moment")
    (ledger.path / "stop").touch()
    if not now:
        print(f"{name} stops after the current trial")
        return 0
    os.kill(holder["pid"], signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    while campaign_lock.is_running(ledger):
        if time.monotonic() > deadline:
            raise Refused(f"process {holder['pid']} still runs {name!r} {END_SECONDS:.0f} s after SIGTERM")
        time.sleep(0.1)
    print(f"{name} is stopped; nightshift resume {name}")
    return 0


def _lives(pid: int, known: str | None) -> bool:
    """Whether a process is still the one that was noted, whose pid may have been given to another."""
    try:
        return identity(pid) == known
    except OSError:
        return False
