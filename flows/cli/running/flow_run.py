"""A flow of a campaign, run from the terminal: shown while it runs, and complete at the Prefect server afterwards."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from flows.cli.seeing import print_status
from flows.server import server_process
from flows.views import terminal
from flows.views.own_servers import own_servers
from flows.views.terminal import short
from flows.watch import CampaignWatch
from tasks.sandbox.program import CannotStart
from tasks.store.ledger import Ledger, ended
from tasks.system.home import home

LEDGER = "the ledger has everything"
UNREACHED = "Failed to reach API"
"""Prefect's message for a server that died before it was told of a run."""


def run_and_show(flow: Any, parameters: dict[str, Any], api: str | None, as_json: bool, again: str) -> int:
    """Run a flow of a campaign, and print its status; the exit code.

    Args:
        parameters: Of the flow, the campaign's `name` among them.
        api: The stated Prefect server; None: our own.
        again: The command that goes on after an interruption.
    """
    name = parameters["name"]
    console = terminal.console(as_json)
    try:
        with CampaignWatch(name, console), ExitStack() as server:
            url = server.enter_context(server_process.prefect_server(api, home()))
            console.print(f"Prefect: {url.removesuffix('/api')} ({_which(url)})", style="dim")
            run_flow(flow, parameters, url, console)
    except KeyboardInterrupt:
        print(f"\nnightshift: interrupted; {_how_to_go_on(name, again)}", file=sys.stderr)
        return 130
    except (OSError, httpx.HTTPError, CannotStart) as fault:  # the machine's: no space, no server, or a busy one
        print(f"nightshift: {fault}\n{_how_to_go_on(name, again)}", file=sys.stderr)
        return 1
    if not as_json:
        print()
    return print_status(Ledger.open(name), as_json)


def run_flow(flow: Any, parameters: dict[str, Any], url: str, console: Console) -> None:
    """Run a flow of a campaign, and wait until the server has stored all of its task runs."""
    from prefect.exceptions import Abort

    name, began = parameters["name"], time.time()
    try:
        ending = flow(**parameters, return_state=True)
    except Abort as cancelled:  # by a person, in the Prefect UI
        raise KeyboardInterrupt from cancelled
    except httpx.TransportError:
        if not _ended_since(name, began):
            raise
        ending = None
    except RuntimeError as unreached:
        if UNREACHED in str(unreached):
            raise ConnectionError(str(unreached)) from unreached
        raise
    finally:
        server_process.drain(url)
    if ending is None:
        console.print(f"the Prefect server is gone, its pages lack the end; {LEDGER}", style="yellow")
        return
    if ending.is_crashed() or (ending.is_failed() and not _ended_since(name, 0.0)):
        ending.result()  # raises what ended the flow, which is not a campaign that failed
    run, login = str(ending.state_details.flow_run_id), server_process.credentials(url, home())
    if not server_process.wait_for_rows(url, run, login):
        console.print(f"the Prefect server lacks some task runs; {LEDGER}", style="yellow")


def _which(url: str) -> str:
    """Whose server it is, and how to log in at our own one's pages."""
    for server in own_servers(home()):
        if server.url == url:
            return f"of this home, not of a Prefect profile; it asks once for the line of {short(Path(server.login))}"
    return "of --server or PREFECT_API_URL"


def _ended_since(name: str, moment: float) -> bool:
    """Whether the campaign has ended, in whatever state, after that moment (Unix time)."""
    end = ended(Ledger.open(name)) if Ledger.exists(name) else {}
    return bool(end) and end["time"] >= moment


def _how_to_go_on(name: str, again: str) -> str:
    return f"nothing finished is lost: {again}" if Ledger.exists(name) else "nothing had begun yet"
