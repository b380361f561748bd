"""What a campaign's page in Prefect and its directory show, and that no fault of it ends a night."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from flows.engine.certifying import store
from flows.engine.night import Background
from flows.report.page import write_report
from flows.views.run_log import Artifact
from tasks.plots.canvas import png
from tasks.plots.progress import draw
from tasks.store.ledger import Ledger
from tests.support.histories import certified, night
from tests.support.ledgers import created, filled
from tests.support.prefect_api import ask, prefect_at
from tests.support.processes import wait_for

NOBODY = "http://127.0.0.1:9/api"
"""Where no server listens."""


def shown_at(server: str, flow_run_id: str) -> list[dict[str, Any]]:
    """A flow run's artifacts, its own result left out."""
    chosen = {"artifacts": {"flow_run_id": {"any_": [flow_run_id]}}}
    return [artifact for artifact in ask("POST", f"{server}/artifacts/filter", chosen) if artifact["key"]]


def faults(ledger: Ledger) -> list[str]:
    return [event["error"] for event in ledger.events() if event["event"] == "view"]


def kept_up(ledger: Ledger, run: str | None = None, rest: float = 60.0) -> Background:
    return Background(ledger, "view", Artifact(ledger, run, write_report).update, print, rest)


def picture_of(ledger: Ledger) -> bytes:
    of = ledger.environment
    return png(draw(ledger.history(), of.metric, of.higher_is_better, ledger.certificates()))


def test_a_night_makes_its_artifact_once_and_updates_it(tmp_path: Path, server: str) -> None:
    ledger, history = created(tmp_path), night(2.25, 1.0, 3.0, higher_is_better=False)
    flow = ask("POST", f"{server}/flows/", {"name": "test"})["id"]
    run = str(ask("POST", f"{server}/flow_runs/", {"flow_id": flow})["id"])
    filled(ledger, history[:1])
    with prefect_at(server), kept_up(ledger, run):
        wait_for(lambda: len(shown_at(server, run)) == 1)
        (before,) = shown_at(server, run)
        filled(ledger, history)
        store(ledger, certified(1, [1.0, 1.1, 0.9], [2.2, 2.3, 2.4], higher_is_better=False, error=0.01))

    (after,) = shown_at(server, run)
    assert (after["id"], after["key"]) == (before["id"], "campaign-n-report")
    assert "certified" in after["data"] and "| 2 | discard |" in after["data"]
    assert "Trial 1 certified: 1 against the baseline's 2.3" in after["description"]
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger)


def test_a_server_that_is_down_is_noted_once_and_holds_nobody_up_not_even_an_interrupt(tmp_path: Path) -> None:
    ledger, history = created(tmp_path), night(2.25, 1.0, 3.0, higher_is_better=False)
    filled(ledger, history[:1])
    with contextlib.suppress(KeyboardInterrupt), prefect_at(NOBODY), kept_up(ledger, rest=3600):
        wait_for(lambda: len(faults(ledger)) == 1)
        early = (ledger.path / "progress.png").read_bytes()
        filled(ledger, history)
        assert (ledger.path / "progress.png").read_bytes() == early, "pages wait"
        raise KeyboardInterrupt

    assert len(faults(ledger)) == 1
    assert (ledger.path / "progress.png").read_bytes() == picture_of(ledger) != early
