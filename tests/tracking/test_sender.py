"""The sender: trials go to MLflow beside the campaign, in their order, and a fault of ours ends the campaign."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tasks.certifying.certificate import Certificate
from tasks.system import interrupt
from tasks.tracking.sender import Sender
from tasks.tracking.trial_run import CampaignRecord, TrialFiles
from tasks.trial import History, Trial
from tests.support.fake_tracker import Shelf, outbox_of, settled
from tests.support.ledgers import created


class Slow(Shelf):
    """A server that answers once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()

    def log_trial(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        assert self.answers.wait(20)
        return super().log_trial(campaign, trial, files)


class Full(Shelf):
    def log_progress(
        self, campaign: CampaignRecord, trial: Trial, history: History, certificates: Sequence[Certificate]
    ) -> None:
        raise OSError("no space left on device")


def test_nothing_waits_for_the_server_and_all_is_sent_before_the_block_ends(tmp_path: Path) -> None:
    ledger, history = created(tmp_path), ()
    outbox = outbox_of(ledger, shelf := Slow())
    with Sender(outbox) as sender:
        for _ in range(3):
            history += (settled(ledger, history),)
            sender.send(history[-1])
        assert shelf.sent == []
        shelf.answers.set()
    assert (shelf.sent, outbox.waiting) == ([0, 1, 2], [])
    assert shelf.progress == [(0, 1), (1, 2), (2, 3)]


def test_what_was_not_sent_when_the_campaign_was_interrupted_is_left_to_the_next_process(tmp_path: Path) -> None:
    ledger, history = created(tmp_path), ()
    shelf = Slow()
    with pytest.raises(KeyboardInterrupt), Sender(outbox_of(ledger, shelf)) as sender:  # noqa: PT012
        for _ in range(3):
            history += (settled(ledger, history),)
            sender.send(history[-1])
        threading.Timer(0.3, shelf.answers.set).start()
        raise KeyboardInterrupt
    assert shelf.sent in ([], [0])
    outbox_of(ledger, shelf, history).close("stopped")
    assert shelf.sent == [0, 1, 2]


def test_a_process_that_is_asked_to_end_does_not_wait_until_all_is_sent(tmp_path: Path) -> None:
    ledger, history = created(tmp_path), ()
    shelf = Slow()
    with pytest.raises(KeyboardInterrupt), interrupt.deferred(), Sender(outbox_of(ledger, shelf)) as sender:  # noqa: PT012
        for _ in range(3):
            history += (settled(ledger, history),)
            sender.send(history[-1])
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        threading.Timer(1.0, shelf.answers.set).start()
    assert shelf.sent == [0], "the one under way"
    outbox_of(ledger, shelf, history).close("stopped")
    assert shelf.sent == [0, 1, 2]


def test_a_fault_that_is_not_the_servers_ends_the_campaign(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    with pytest.raises(OSError, match="no space"), Sender(outbox_of(ledger, Full())) as sender:
        sender.send(settled(ledger, ()))
