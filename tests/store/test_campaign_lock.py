"""One life at a time: the lock, the hours over all lives, and what a kill leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from environments.plugins import Refused
from tasks.store import campaign_lock
from tasks.store.campaign_lock import STOP
from tasks.store.ledger import Ledger
from tasks.system import orphans

HOLD = """\
import subprocess, sys, time
from tasks.store.ledger import Ledger
from tasks.store import campaign_lock
from tasks.system.orphans import MARKER
ledger = Ledger.open("n")
with campaign_lock.hold(ledger, "f-1"):
    marker = {MARKER: ledger.campaign.campaign_id + "/0003/1"}
    subprocess.Popen(["sleep", "300"], env=marker, start_new_session=True, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    ledger.event("settled")
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held_elsewhere() -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the campaign n as flow run f-1, with a training of its own."""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", HOLD], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_killed_life_leaves_the_lock_free_its_time_behind_and_its_processes_to_the_next(ledger: Ledger) -> None:
    campaign_id = ledger.campaign.campaign_id
    with held_elsewhere() as process:
        before = list(ledger.events())
        with (
            pytest.raises(Refused, match=rf"'n' is already running \(process {process.pid} "),
            campaign_lock.hold(ledger),
        ):
            pass
        assert list(ledger.events()) == before and campaign_lock.holder(ledger)["pid"] == process.pid
        assert campaign_lock.is_running(ledger) and process.poll() is None
        ledger.event("idea")  # of a command, some time later
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not campaign_lock.is_running(ledger)
    assert campaign_lock.holder(ledger)["pid"] == process.pid
    assert 0.5 <= campaign_lock.spent(ledger) < 30
    assert len(orphans.marked(campaign_id)) == 1
    with campaign_lock.hold(ledger):
        assert campaign_lock.spent(ledger) >= 0.5
        assert orphans.marked(campaign_id) == []
    kinds = [event["event"] for event in ledger.events()]
    assert kinds == ["life", "settled", "idea", "life", "orphans", "life over"]


def test_another_process_of_the_same_flow_run_waits_for_the_end_of_the_first(ledger: Ledger) -> None:
    held = threading.Event()

    def second() -> None:
        with campaign_lock.hold(ledger, "f-1"):
            held.set()

    with held_elsewhere() as process:
        with pytest.raises(Refused, match="already running"), campaign_lock.hold(ledger, "f-2"):
            pass
        waiting = threading.Thread(target=second)
        waiting.start()
        assert not held.wait(2 * campaign_lock.PATIENCE_SECONDS)
        process.send_signal(signal.SIGKILL)
        assert held.wait(120)
        waiting.join()


@pytest.mark.parametrize("then", ["killed", "another"])
def test_a_request_to_stop_holds_until_a_process_has_come_to_it_or_a_person_begins_another(
    ledger: Ledger, then: str
) -> None:
    with suppress(RuntimeError), campaign_lock.hold(ledger, "f-1"):
        assert not campaign_lock.asked_to_stop(ledger)
        (ledger.path / STOP).touch()
        raise RuntimeError("it is killed")
    flow_run = "f-1" if then == "killed" else "f-2"
    with suppress(KeyboardInterrupt), campaign_lock.hold(ledger, flow_run):
        assert campaign_lock.asked_to_stop(ledger) == (then == "killed")
        raise KeyboardInterrupt
    with campaign_lock.hold(ledger, flow_run):
        assert not campaign_lock.asked_to_stop(ledger), "it has come to it"
        (ledger.path / STOP).touch()
    with campaign_lock.hold(ledger, flow_run):
        assert not campaign_lock.asked_to_stop(ledger), "it ended as asked, and is retried"
