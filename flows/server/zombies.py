"""Dead flow runs that the Prefect server or its automations have missed: marked Crashed, or resumed.

A run whose death nobody reports stays `Running`: after a reboot, or when its worker and server were killed with it.
Marked Crashed, it is resumed (automations.yaml). A crash that is reported while the server starts may go unnoticed,
since its automations listen a moment later than its API.
"""

from __future__ import annotations

import datetime
import itertools
import platform
import time
from collections.abc import Mapping
from typing import Any

import psutil

from flows.server import automations
from flows.server.api import Api
from tasks.store.campaign_lock import is_running
from tasks.store.ledger import ended, readable
from tasks.system.commands import identity

UNDER_WAY = ("RUNNING", "CANCELLING")
BEGIN_SECONDS = 300.0
"""How long a run may be Running before the ledger notes that it holds its campaign."""
RESUME_SECONDS = 60.0
"""How long the automations have to resume a crashed run, which takes them a second."""
FORGET_SECONDS = 24 * 3600.0
"""A run that crashed longer ago is not resumed."""
RESUMED = "autoresume"
"""The tag of runs that are to be resumed."""
MESSAGE = "its process is gone, as after a reboot or a kill"
Life = Mapping[str, Any]
"""An event of the ledger: `time`, `pid`, `host` and `flow_run_id`."""


def sweep(url: str, auth: tuple[str, str] | None) -> list[str]:
    """Mark the dead runs of this home's campaigns Crashed, or Cancelled where a person was cancelling; their names."""
    with Api(url, auth) as api:
        chosen = {"flow_runs": {"state": {"type": {"any_": list(UNDER_WAY)}}}}
        runs = api.ask("POST", "/flow_runs/filter", chosen)
        lives = _lives() if runs else {}
        dead = [run for run in runs if run["id"] in lives and is_dead(lives[run["id"]], _since(run))]
        for run in dead:
            end = "Cancelled" if run["state_type"] == "CANCELLING" else "Crashed"
            state = {"type": end.upper(), "name": end, "message": MESSAGE}
            api.ask("POST", f"/flow_runs/{run['id']}/set_state", {"state": state})
    return [str(run["name"]) for run in dead]


def resume_forgotten(url: str, auth: tuple[str, str] | None) -> list[str]:
    """Resume crashed runs of this home's campaigns that the automation has missed, if it is on; their names."""
    with Api(url, auth) as api:
        tagged = {"state": {"type": {"any_": ["CRASHED"]}}, "tags": {"all_": [RESUMED]}}
        runs = api.ask("POST", "/flow_runs/filter", {"flow_runs": tagged})
        if runs and automations.is_off(api, automations.RESUME):
            return []
        lives = _unfinished() if runs else {}
        mine = [run for run in runs if run["id"] in lives]
        forgotten = [run for run in mine if RESUME_SECONDS < time.time() - _since(run) < FORGET_SECONDS]
        for run in forgotten:
            state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": automations.RESUMED_MESSAGES[1]}
            api.ask("POST", f"/flow_runs/{run['id']}/set_state", {"state": state, "force": True})
    return [str(run["name"]) for run in forgotten]


def _unfinished() -> set[str]:
    """The last flow runs of this home's campaigns that were cut off."""
    cut_off = [ledger for ledger in readable() if not is_running(ledger) and ended(ledger) == {}]
    lives = [[event for event in ledger.events() if event["event"] == "life"] for ledger in cut_off]
    return {str(events[-1].get("flow_run_id")) for events in lives if events}


def is_dead(life: Life, since: float) -> bool:
    """Whether the last life of a run, shown as under way since then (Unix time), is certainly over."""
    if life.get("host") != platform.node():
        return False
    if since > life["time"] and time.time() - since < BEGIN_SECONDS:  # another life may be about to begin
        return False
    try:
        process = psutil.Process(life["pid"])
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        if "identity" in life:  # a clock that is set does not change it
            return bool(identity(process.pid) != life["identity"])
        return bool(process.create_time() > life["time"])
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return True


def _lives() -> dict[str, Life]:
    """The last life of every flow run of this home's campaigns, by the run's id."""
    events = itertools.chain.from_iterable(ledger.events() for ledger in readable())
    lives = (event for event in events if event["event"] == "life" and event.get("flow_run_id"))
    return {life["flow_run_id"]: life for life in lives}


def _since(run: Mapping[str, Any]) -> float:
    return datetime.datetime.fromisoformat(run["state"]["timestamp"]).timestamp()
