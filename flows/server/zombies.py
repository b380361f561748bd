"""The start-up sweep: runs that died, and of which the Prefect server or its automations have not heard.

A run that nobody reports as dead stays `Running` for ever: after a reboot, or when its worker and its server were
killed along with it. Marked Crashed, it is resumed (automations.yaml). And one whose crash was reported while a server
was only just starting may stay Crashed: the server's automations listen a moment later than its API.
"""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Mapping
from typing import Any

import psutil

from flows.server.api import Api
from flows.views.status import ended
from tasks.store.ledger import Ledger, campaigns
from tasks.store.life import is_running

UNDER_WAY = ("RUNNING", "CANCELLING")
BEGIN_SECONDS = 300.0
"""How long a run that is Running may take until it holds its campaign, and has said so in the ledger."""
RESUME_SECONDS = 60.0
"""How long the automations have for a run that has crashed, which takes them a second."""
FORGET_SECONDS = 24 * 3600.0
"""A run that crashed longer ago is left to people."""
RESUMED = "autoresume"
"""The tag of runs that are to be resumed."""
MESSAGE = "its process is gone, as after a reboot or a kill; found when Nightshift looked"
Life = Mapping[str, Any]
"""What the ledger notes when a life begins: `time`, `pid`, `host` and `flow_run_id`."""


def sweep(url: str, auth: tuple[str, str] | None) -> list[str]:
    """Mark the dead runs of this home's campaigns Crashed; their names.

    Raises:
        httpx.HTTPError: the server does not answer.
    """
    with Api(url, auth) as api:
        chosen = {"flow_runs": {"state": {"type": {"any_": list(UNDER_WAY)}}}}
        runs = api.ask("POST", "/flow_runs/filter", chosen)
        lives = _lives() if runs else {}
        dead = [run for run in runs if run["id"] in lives and is_dead(lives[run["id"]], _since(run))]
        for run in dead:
            state = {"type": "CRASHED", "name": "Crashed", "message": MESSAGE}
            api.ask("POST", f"/flow_runs/{run['id']}/set_state", {"state": state})
    return [str(run["name"]) for run in dead]


def resume_forgotten(url: str, auth: tuple[str, str] | None) -> list[str]:
    """Have runs of this home's campaigns resumed that are to be, crashed, and were not; their names.

    Raises:
        httpx.HTTPError: the server does not answer.
    """
    with Api(url, auth) as api:
        tagged = {"state": {"type": {"any_": ["CRASHED"]}}, "tags": {"all_": [RESUMED]}}
        runs = api.ask("POST", "/flow_runs/filter", {"flow_runs": tagged})
        lives = _unfinished() if runs else {}
        forgotten = [
            run
            for run in runs
            if run["id"] in lives and RESUME_SECONDS < time.time() - _since(run) < FORGET_SECONDS
        ]
        for run in forgotten:
            state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "it had crashed unheard"}
            api.ask("POST", f"/flow_runs/{run['id']}/set_state", {"state": state, "force": True})
    return [str(run["name"]) for run in forgotten]


def _unfinished() -> set[str]:
    """The runs with which campaigns of this home were under way when they were cut off."""
    found = (Ledger.open(name) for name in campaigns())
    cut_off = [ledger for ledger in found if not is_running(ledger) and ended(ledger) == {}]
    lives = [[event for event in ledger.events() if event["event"] == "life"] for ledger in cut_off]
    return {str(mine[-1].get("flow_run_id")) for mine in lives if mine}


def is_dead(life: Life, since: float) -> bool:
    """Whether the last life of a run, which the server shows as under way since then (Unix time), is over for sure."""
    if life.get("host") != platform.node():
        return False
    if since > life["time"] and time.time() - since < BEGIN_SECONDS:  # another life may be about to begin
        return False
    try:
        process = psutil.Process(life["pid"])
        return bool(process.create_time() > life["time"] or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _lives() -> dict[str, Life]:
    """The last life of every run that this home's campaigns know of, by the run's id."""
    ledgers = [Ledger.open(name) for name in campaigns()]
    return {
        event["flow_run_id"]: event
        for ledger in ledgers
        for event in ledger.events()
        if event["event"] == "life" and event.get("flow_run_id")
    }


def _since(run: Mapping[str, Any]) -> float:
    return datetime.datetime.fromisoformat(run["state"]["timestamp"]).timestamp()
