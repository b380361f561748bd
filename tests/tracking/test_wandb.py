"""Trials as runs of Weights & Biases: offline, with the real package where it is there; and a W&B that is not there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from flows.engine.certifying import store
from flows.engine.night import Background
from tasks.store.ledger import Ledger
from tasks.tracking.sync import sync
from tests.support.histories import certified
from tests.support.mlflow_records import make_trial, put

real = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="the extra `wandb` is not installed")


@pytest.fixture
def ledger(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A campaign of two trials, whose user has a project."""
    monkeypatch.setenv("WANDB_PROJECT", "nights")
    monkeypatch.setenv("WANDB_MODE", "offline")
    put(ledger, make_trial(0))
    put(ledger, make_trial(7))
    return ledger


def runs(ledger: Ledger) -> list[Path]:
    return sorted((ledger.path / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.name)


def test_without_the_package_it_is_said_once_and_nothing_fails(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    said: list[str] = []
    with Background(ledger, "tracking", lambda: sync(ledger, None, "running").problem, said.append) as recording:
        recording.close(lambda: sync(ledger, None, "finished").problem)
    assert len(said) == 1 and "nightshift-rl[wandb]" in said[0]
    monkeypatch.delenv("WANDB_PROJECT")
    assert sync(ledger, None, "finished").problem == ""


@real
def test_a_trial_is_one_run_however_often_it_is_sent_and_a_champions_has_its_certificate(ledger: Ledger) -> None:
    assert sync(ledger, None, "running").problem == ""
    first = runs(ledger)
    campaign_id = ledger.campaign.campaign_id
    assert [path.name for path in first] == [f"run-{campaign_id}-{trial}-1.wandb" for trial in ("0000", "0007")]
    for word in (b"nights", b"learning_rate", b"train/m/0", b"312.5", b"verdict"):
        assert word in first[1].read_bytes()
    assert sync(ledger, None, "running").problem == "" and runs(ledger) == first
    store(ledger, certified(7, (9.0, 9.1, 9.2, 9.3), (1.0, 1.1, 1.2, 1.3)))
    next((ledger.path / "wandb").glob("*-0000-1.digest")).unlink()
    assert sync(ledger, None, "finished").problem == "", "the first of them was cut off by a kill"
    assert [path.name for path in runs(ledger)] == [path.name for path in first]
    assert [b"certificate/gain" in path.read_bytes() for path in runs(ledger)] == [False, True]
