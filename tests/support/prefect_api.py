"""A Prefect server's API as tests ask it: once more where the server is busy, as Prefect's own clients do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
import yaml  # type: ignore[import-untyped]  # comes with Prefect

from tasks.system.retrying import retrying

SQLITE_SECONDS = 60
"""How long Prefect's SQLite waits for its turn."""


def ask(method: str, url: str, body: Any = None, auth: tuple[str, str] | None = None) -> Any:
    """The answer, parsed from JSON; None where it is empty. Raises httpx.HTTPError if there is none."""
    answer = retrying(180)(
        lambda: httpx.request(method, url, json=body, auth=auth, timeout=SQLITE_SECONDS).raise_for_status()
    )
    return answer.json() if answer.content else None


def set_state(url: str, run: str, **state: Any) -> None:
    """Force a flow run into a state, as the buttons of the UI do."""
    ask("POST", f"{url.rstrip('/')}/flow_runs/{run}/set_state", {"state": state, "force": True})


def states_of(url: str, run: str, field: str = "type") -> list[str]:
    """All states of a flow run, in order."""
    found = ask("GET", f"{url}/flow_run_states/?flow_run_id={run}")
    return [state[field] for state in sorted(found, key=lambda state: state["timestamp"])]


def remove_automations(url: str) -> None:
    for one in ask("POST", f"{url}/automations/filter", {}):
        ask("DELETE", f"{url}/automations/{one['id']}")


@contextlib.contextmanager
def prefect_at(url: str, login: str | None = None) -> Iterator[None]:
    """Have the flows and tasks of this process run at that server."""
    from prefect import settings

    stated = {settings.PREFECT_API_URL: url, settings.PREFECT_API_AUTH_STRING: login}
    with settings.temporary_settings({**stated, settings.PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield


def put_automations(url: str, login: str | None = None, **periods: float) -> list[str]:
    """Put ours on a server, with other seconds of some (`silent`, `resume`); the names of those that were written."""
    from flows.server import setup

    plan = yaml.safe_load(setup.AUTOMATIONS.read_text())
    for each in plan["automations"]:
        trigger = each["trigger"]
        trigger["within"] = periods.get(each["name"].removeprefix("nightshift-"), trigger["within"])
    file = SimpleNamespace(read_text=lambda: yaml.safe_dump(plan))
    with prefect_at(url, login), mock.patch.object(setup, "AUTOMATIONS", file):
        return setup.put_automations()
