"""One life at a time: the lock, the hours over all lives, and what a kill leaves behind."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from environments.plugins import Refused
from tasks.store import campaign_lock
from tasks.store.campaign_lock import CampaignLock
from tasks.store.ledger import Ledger
from tasks.system import orphans
from tasks.system.interrupt import StoppedForGood
from tests.support.ledgers import created

HOLD = """\
import subprocess, sys, time
from tasks.store.ledger import Ledger
from tasks.store.campaign_lock import CampaignLock
from tasks.system.orphans import MARKER
with CampaignLock(Ledger.open("n")) as life:
    if "orphan" in sys.argv:
        marker = {MARKER: life.ledger.campaign.campaign_id + "/0003/1"}
        subprocess.Popen(["sleep", "300"], env=marker, start_new_session=True, stdout=subprocess.DEVNULL)
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held_elsewhere(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the campaign n."""
    command = [sys.executable, "-c", HOLD, *arguments]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return created(tmp_path)


def test_a_campaign_runs_while_it_is_held(ledger: Ledger) -> None:
    assert not campaign_lock.is_running(ledger)
    with CampaignLock(ledger):
        assert campaign_lock.is_running(ledger)
    assert not campaign_lock.is_running(ledger)


def test_a_second_life_is_refused_and_told_who_holds_it(ledger: Ledger) -> None:
    with held_elsewhere() as process:
        assert campaign_lock.is_running(ledger)
        why = rf"campaign 'n' is already running \(process {process.pid} on .+ since \d\d:\d\d:\d\d\)"
        with pytest.raises(Refused, match=why), CampaignLock(ledger):
            pass
        assert process.poll() is None
        assert campaign_lock.holder(ledger)["pid"] == process.pid


def test_a_life_that_was_refused_leaves_no_trace(ledger: Ledger) -> None:
    with CampaignLock(ledger):
        before = campaign_lock.lock_path(ledger).read_text(), list(ledger.events())
        with pytest.raises(Refused), CampaignLock(ledger):
            pass
        assert campaign_lock.is_running(ledger)
        assert campaign_lock.holder(ledger)["pid"] == os.getpid()
        assert list(ledger.events()) == before[1]


def test_a_killed_life_leaves_the_lock_free_its_time_behind_and_its_processes_to_the_next(ledger: Ledger) -> None:
    campaign_id = ledger.campaign.campaign_id
    with held_elsewhere("orphan") as process:
        time.sleep(campaign_lock.BEAT_SECONDS + 0.3)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not campaign_lock.is_running(ledger)
    assert campaign_lock.holder(ledger)["pid"] == process.pid
    assert campaign_lock.BEAT_SECONDS <= campaign_lock.spent(ledger) < 30
    assert len(orphans.marked(campaign_id)) == 1
    with CampaignLock(ledger) as next_life:
        assert next_life.spent >= campaign_lock.BEAT_SECONDS
        assert orphans.marked(campaign_id) == []
    assert [(e["event"], e.get("killed")) for e in ledger.events()] == [
        ("life", None), ("life", None), ("orphans", ["sleep 300"]),
    ]  # fmt: skip


def test_the_hours_of_all_lives_add_up(ledger: Ledger) -> None:
    assert campaign_lock.spent(ledger) == 0.0
    for _ in range(2):
        with CampaignLock(ledger):
            time.sleep(0.1)
    assert 0.2 <= campaign_lock.spent(ledger) < 5
    second = [event["spent_before"] for event in ledger.events()][1]
    assert 0.1 <= second < campaign_lock.spent(ledger)


def test_the_time_between_two_lives_is_not_spent(ledger: Ledger) -> None:
    with CampaignLock(ledger):
        pass
    time.sleep(0.9)
    with CampaignLock(ledger):
        pass
    assert campaign_lock.spent(ledger) < 0.9


def test_a_campaign_that_was_copied_has_spent_what_it_had(ledger: Ledger, home: Path) -> None:
    """A copy is as old as its copying; that must not look like a life that went on until then."""
    with CampaignLock(ledger):
        pass
    before = campaign_lock.spent(ledger)
    moved = ledger.path.with_name("moved")
    shutil.copytree(ledger.path, moved, copy_function=shutil.copy)
    later = time.time() + 7 * 86_400
    os.utime(moved / "lock", (later, later))
    assert campaign_lock.spent(Ledger(moved, ledger.campaign)) == before < 60


def test_a_life_says_who_when_and_what_it_was_told(ledger: Ledger) -> None:
    with CampaignLock(ledger, flow_run_id="f-1", page=None):
        pass
    (event,) = ledger.events()
    assert (event["event"], event["pid"], event["flow_run_id"]) == ("life", os.getpid(), "f-1")
    assert abs(event["time"] - time.time()) < 60


def test_whoever_asks_can_see_that_somebody_asked_it_to_stop(ledger: Ledger) -> None:
    with CampaignLock(ledger) as running:
        assert not running.asked_to_stop
        (ledger.path / "stop").touch()
        assert running.asked_to_stop


def test_a_wish_to_stop_is_for_one_life_only(ledger: Ledger) -> None:
    (ledger.path / "stop").touch()
    with CampaignLock(ledger) as running:
        assert not running.asked_to_stop


@pytest.mark.parametrize("then", ["nothing", "end", "another", "handed over"])
def test_a_wish_to_stop_holds_until_a_process_has_come_to_it(ledger: Ledger, then: str) -> None:
    with CampaignLock(ledger, flow_run_id="f-1"):
        (ledger.path / "stop").touch()  # and it is killed
    if then == "end":
        ledger.event("end", state="stopped")
    if then == "handed over":
        ledger.event("continued", flow_run_id="f-1")
    with CampaignLock(ledger, flow_run_id="f-1" if then in ("nothing", "end") else "f-2") as resumed:
        assert resumed.asked_to_stop == (then in ("nothing", "handed over"))


def test_who_is_interrupted_after_a_wish_to_stop_has_come_to_it(ledger: Ledger) -> None:
    def interrupted() -> None:
        with CampaignLock(ledger, flow_run_id="f-1"):
            (ledger.path / "stop").touch()
            raise KeyboardInterrupt

    with pytest.raises(StoppedForGood):
        interrupted()
    with CampaignLock(ledger, flow_run_id="f-1") as resumed:
        assert not resumed.asked_to_stop


def test_who_looks_whether_a_campaign_runs_does_not_keep_it_from_starting(ledger: Ledger) -> None:
    with CampaignLock(ledger):
        pass
    with campaign_lock.lock_path(ledger).open("r") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        threading.Timer(0.05, lambda: fcntl.flock(looker, fcntl.LOCK_UN)).start()
        with CampaignLock(ledger):
            assert campaign_lock.is_running(ledger)


def test_who_may_only_read_a_campaign_sees_whether_it_runs(ledger: Ledger, tmp_path: Path) -> None:
    lock = tmp_path / "of-others" / campaign_lock.LOCK
    lock.parent.mkdir()
    with CampaignLock(ledger):
        os.link(campaign_lock.lock_path(ledger), lock)
        lock.chmod(0o444)
        assert as_a_reader(lock)
    assert not as_a_reader(lock)
    lock.unlink()
    assert not campaign_lock.is_held(lock), "and none is made"
    assert not lock.exists()


def as_a_reader(lock: Path) -> bool:
    """What `is_held` tells a process that may not write the file."""
    lock.parent.chmod(0o755)
    child = os.fork()
    if child == 0:
        os.chdir(lock.parent)
        if os.geteuid() == 0:
            os.setuid(65534)
        held, writable = campaign_lock.is_held(Path(lock.name)), os.access(lock.name, os.W_OK)
        os._exit(2 if writable else int(held))
    answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert answer in (0, 1)
    return answer == 1


def test_a_lock_that_was_never_taken_names_nobody(ledger: Ledger) -> None:
    assert campaign_lock.holder(ledger) == {}
    assert campaign_lock.describe(ledger) == "process ? on ? since ?"
    assert not campaign_lock.is_running(ledger)
    assert not campaign_lock.lock_path(ledger).exists(), "looking makes nothing"


def test_a_lock_that_is_no_json_is_taken_all_the_same(ledger: Ledger) -> None:
    campaign_lock.lock_path(ledger).write_text("half a li")
    assert campaign_lock.spent(ledger) == 0.0
    with CampaignLock(ledger):
        assert campaign_lock.holder(ledger)["pid"] == os.getpid()


def test_what_a_life_notes_is_one_json_line_at_any_moment(ledger: Ledger) -> None:
    with CampaignLock(ledger):
        time.sleep(campaign_lock.BEAT_SECONDS + 0.2)
        text = campaign_lock.lock_path(ledger).read_text()
    assert re.fullmatch(r"\{.*\} *\n", text)
    assert json.loads(text)["spent"] >= campaign_lock.BEAT_SECONDS
