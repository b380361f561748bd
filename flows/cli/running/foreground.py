"""`nightshift run` and `resume`: a campaign, from its options to its end."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import Any

from environments import plugins
from environments.plugins import Refused
from flows.cli import consent
from flows.cli.running import detached
from flows.cli.running.flow_run import run_and_show
from flows.cli.seeing.status import print_status
from flows.server import server_process
from flows.spec.spec import laid_over
from flows.status import document, state, stored_spec
from flows.views import terminal
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger, campaigns, free_name, readable
from tasks.system.home import home
from tasks.tracking.connection import locate


def run(stated: dict[str, Any], server: str | None, as_json: bool, detach: bool = False, trust: bool = False) -> int:
    """Start or resume a campaign and run it until it ends; the command's exit code.

    Args:
        stated: Parameters of the flow, over those that the campaign was started with.
        detach: Leave it to a process of its own, and return once that has begun.
        trust: Agree to what the environment asks for. That of an existing campaign was asked about at its start.
    """
    server_process.settle_in(home())
    from flows.spec.campaign_spec import CampaignSpec
    from flows.spending.budget import check_budget

    name = stated.get("name")
    stored = None
    if name and Ledger.exists(name):
        Ledger.open(name).check_version()
        stored = stored_spec(Ledger.open(name))
    parameters = laid_over(stored or {}, stated)
    if "environment" not in parameters:
        plugins.require(str(name), campaigns(), what="campaign")
    spec = CampaignSpec.of(**{"name": f"unnamed-{secrets.token_hex(8)}", **parameters})
    if not stored:
        consent.ask_about(spec.environment, spec.advanced.overrides, trust)
    spec.check()
    check_budget(spec)
    if stored:
        ledger = Ledger.open(spec.name)
        status = document(ledger)
        is_complete = status["state"] == "finished" and not status["waiting_to_record"]
        if is_complete and not stated["advanced"] and stated.keys() <= {"name", "environment", "advanced"}:
            return print_status(ledger, as_json)
        campaign_lock.check_idle(ledger)
    api = server_process.stated_server(server, home())
    with server_process.used(api, home()) if api else contextlib.nullcontext():
        locate(spec.tracking, home())
    if not name:
        spec = spec.model_copy(update={"name": free_name(Path(spec.environment).name)})
    if detach:
        return detached.start(spec, api, as_json)
    console = terminal.console(as_json)
    limits = f"{spec.trials} trial{'s' * (spec.trials > 1)}, {spec.hours:g} h at most, isolation {spec.isolation.level}"
    console.print(f"[bold]{spec.name}[/]: {spec.proposer} in {spec.environment}, {limits}")
    if spec.isolation.level == "none":
        console.print("trials run as you, without a sandbox: `nightshift doctor` says why", style="yellow")
    try:
        from flows.campaign import campaign

        given = {field: getattr(spec, field) for field in type(spec).model_fields}
        return run_and_show(campaign, given, api, as_json, f"nightshift resume {spec.name}")
    finally:
        with contextlib.suppress(OSError):  # a reserved name that was never used: its directory is empty
            (home() / spec.name).rmdir()


def newest_unfinished() -> str:
    """The name of the newest campaign that can be resumed.

    Raises:
        Refused: there is none.
    """
    unfinished = [ledger.campaign.name for ledger in readable() if state(ledger) in ("interrupted", "stopped")]
    if not unfinished:
        raise Refused(
            "no campaign is unfinished: name one to extend a finished campaign, for example with more --trials"
        )
    return unfinished[-1]
