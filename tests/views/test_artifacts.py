"""What a campaign's page in Prefect and its directory show, and that no fault of it ends a night."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.engine.certifying import store
from flows.report.write import write_report
from flows.views.artifacts import SEND_SECONDS, Artifacts, key
from tasks.plots.canvas import png
from tasks.plots.progress import draw
from tasks.store.ledger import Ledger
from tasks.store.workspace import TRIAL
from tasks.system.files import write_atomic
from tasks.trial import History
from tests.support.histories import certified
from tests.support.ledgers import created
from tests.support.outcomes import night
from tests.support.prefect_api import ask
from tests.support.toy import nightshift, quadratic, status

NOBODY = "http://127.0.0.1:9/api"
"""Where no server listens."""


def shown_at(server: str, flow_run_id: str) -> list[dict[str, Any]]:
    """A flow run's artifacts, its own result left out."""
    chosen = {"artifacts": {"flow_run_id": {"any_": [flow_run_id]}}}
    return [artifact for artifact in ask("POST", f"{server}/artifacts/filter", chosen) if artifact["key"]]


def faults(ledger: Ledger) -> list[str]:
    return [event["failed"] for event in ledger.events() if event["event"] == "view"]


def picture_of(ledger: Ledger) -> bytes:
    of = ledger.environment
    return png(draw(ledger.history(), ledger.campaign.name, of.metric, of.higher_is_better, ledger.certificates()))


def write(ledger: Ledger, history: History) -> None:
    """Have the ledger hold these trials."""
    for trial in history:
        write_atomic(ledger.place(trial.number).trial, TRIAL.dump_json(trial).decode())


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.05)


@contextlib.contextmanager
def prefect_at(url: str) -> Iterator[None]:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: url}):
        yield


@pytest.mark.slow
def test_a_campaign_leaves_its_final_state_and_a_resumed_one_its_own(tmp_path: Path, home: Path, server: str) -> None:
    folder = quadratic(tmp_path / "quad")
    begun = nightshift("run", str(folder), "--name", "a.b_c", "--trials", "2", "--seed", "1", server=server)
    assert begun.returncode == 0, begun.stderr
    ledger = Ledger.open("a.b_c")
    picture = (ledger.path / "progress.png").read_bytes()
    assert picture == picture_of(ledger)

    (home / "a.b_c" / "progress.png").unlink()
    (home / "a.b_c" / "progress.png").mkdir()  # and now nothing can be written there
    resumed = nightshift("resume", "a.b_c", "--trials", "4", server=server)
    assert resumed.returncode == 0, resumed.stderr
    assert status("a.b_c")["spent"]["trials"] == 4
    assert faults(ledger) == ["report"]
    runs = [event["flow_run_id"] for event in ledger.events() if event["event"] == "life"]
    (shown,) = shown_at(server, runs[0])
    assert (shown["key"], shown["type"]) == ("campaign-a-b-c-report", "markdown")
    assert base64.b64encode(picture).decode() in shown["data"]


def test_a_night_makes_its_artifact_once_and_updates_it(tmp_path: Path, server: str) -> None:
    ledger, history = created(tmp_path), night([2.25, 1.0, 3.0], up=False)
    flow = ask("POST", f"{server}/flows/", {"name": "test"})["id"]
    run = str(ask("POST", f"{server}/flow_runs/", {"flow_id": flow})["id"])
    write(ledger, history[:1])
    with prefect_at(server), Artifacts(ledger, run, write_report) as kept_up:
        kept_up.show()
        until(lambda: len(shown_at(server, run)) == 1)
        (before,) = shown_at(server, run)
        write(ledger, history)
        store(ledger, certified(1, [1.0, 1.1, 0.9], [2.2, 2.3, 2.4], higher_is_better=False, error=0.01))
        kept_up.show()

    (after,) = shown_at(server, run)
    assert (after["id"], after["key"]) == (before["id"], key("n"))
    assert "certified" in after["data"] and "| 2 | discard |" in after["data"]
    assert "trial 1 certified: 1 against the baseline's 2.3" in after["description"]
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger)


def test_a_server_that_is_down_is_noted_once_and_holds_nobody_up_not_even_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.views.artifacts.REST_SECONDS", 3600)
    ledger, history = created(tmp_path), night([2.25, 1.0, 3.0], up=False)
    began = time.monotonic()
    write(ledger, history[:1])
    with contextlib.suppress(KeyboardInterrupt), prefect_at(NOBODY), Artifacts(ledger, None, write_report) as kept_up:
        kept_up.show()
        until(lambda: faults(ledger) == ["artifact"])
        early = (ledger.path / "progress.png").read_bytes()
        write(ledger, history)
        kept_up.show()
        assert (ledger.path / "progress.png").read_bytes() == early, "pages wait"
        raise KeyboardInterrupt

    assert faults(ledger) == ["artifact"]
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger) != early
    assert time.monotonic() - began < 3 * SEND_SECONDS
