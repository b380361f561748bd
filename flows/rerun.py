"""The flow `rerun`: run one trial of a campaign again, and recompute later verdicts (flows/engine/redecide.py)."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from prefect import State, flow, runtime
from prefect.states import Completed, Failed
from pydantic import Field

from environments.plugins import Refused
from flows.cli.running.foreground import report, run_flow
from flows.engine import run_certificate, stopping
from flows.engine.preparation import ensure_prepared
from flows.engine.recovery import Presence, check_progress, crash_the_dead, wait_for_the_other
from flows.engine.redecide import finish_pending
from flows.engine.runner import Runner
from flows.server import connect
from flows.spec.campaign_spec import CampaignSpec
from flows.views import terminal
from flows.views.artifacts import Artifacts
from flows.views.follow import CampaignWatch
from flows.views.status import stored_spec
from tasks.record import reconcile
from tasks.store import attempts
from tasks.store import life as lives
from tasks.store.ledger import Ledger, machine
from tasks.store.life import Life
from tasks.system.home import home
from tasks.tracking.outbox import Outbox
from tasks.trial import History, Trial, is_from

Number = Annotated[int, Field(ge=0, description="Of the trial; it must be finished.")]


@flow(name="rerun", flow_run_name="{name} {trial}", persist_result=True, result_serializer="json")
def rerun(name: str, trial: Number) -> State[str]:
    """Train, judge and decide a trial of a campaign again, and recompute every later verdict."""
    ledger, run = Ledger.open(name), runtime.flow_run
    spec = CampaignSpec.of(**stored_spec(ledger))
    wait_for_the_other(ledger, run.id)
    with Life(ledger, flow_run_id=run.id, page=run.ui_url, rerun=trial) as life, Presence(run.id):
        check_progress(ledger, run.id)
        crash_the_dead(ledger, run.id)
        ensure_prepared(ledger, spec.launch)
        finished = reconcile(ledger)
        _begin(ledger, finished, trial, run.id)
        slots = spec.slots(ledger.environment)
        history = finish_pending(spec, ledger, slots, finished)
        outbox = Outbox(ledger, spec.tracking, run.id, history)
        with Artifacts(ledger, run.id) as showcase:
            showcase.show(history)
            end = _end(spec, ledger, history, life.spent)
            if end.state == "finished":
                end = (
                    end
                    if run_certificate.at_the_end(Runner(spec, ledger, history, slots))
                    else stopping.ASKED
                )
                showcase.show(history)
        outbox.close(end.state)
        ledger.event("end", state=end.state, reason=end.reason)
    message = f"{name}: trial {trial} again; {end.reason}"
    return Failed(message=message) if end.state == "failed" else Completed(message=message, data=name)


def run_again(name: str, number: int, server: str | None, as_json: bool) -> int:
    """Run a trial again from the terminal; the command's exit code."""
    ledger = Ledger.open(name)
    if lives.is_running(ledger):
        raise Refused(
            f"campaign {name!r} is running ({lives.describe(ledger)}): wait for its end, or `nightshift stop {name}`"
        )
    check(ledger, ledger.history(), number)
    ledger.verify()
    api = connect.stated_server(server, home())
    console = terminal.console(as_json)
    try:
        with CampaignWatch(name, console), connect.prefect_server(api, home()) as url:
            console.print(f"Prefect: {url.removesuffix('/api')}", style="dim")
            run_flow(rerun, {"name": name, "trial": number}, url, console)
    except KeyboardInterrupt:
        print(
            f"\nnightshift: interrupted; nothing finished is lost: nightshift rerun {name} {number} goes on",
            file=sys.stderr,
        )
        return 130
    return report(Ledger.open(name), as_json)


def check(ledger: Ledger, finished: History, number: int) -> None:
    """Refuse a trial that cannot be run again."""
    name, numbers = ledger.campaign.name, sorted(trial.number for trial in finished)
    if number in numbers:
        _check_machine(ledger, next(trial for trial in finished if trial.number == number))
        return
    if number >= 0 and ledger.place(number).path.is_dir():
        raise Refused(
            f"trial {number} of campaign {name!r} is not finished: nightshift resume {name} goes on with it"
        )
    has = f"it has {numbers[0]} to {numbers[-1]}" if numbers else "none is finished yet"
    raise Refused(f"campaign {name!r} has no trial {number}: {has}")


def _check_machine(ledger: Ledger, trial: Trial) -> None:
    """Refuse a trial of another machine: later verdicts compare with scores of that machine."""
    was, here = trial.runs[-1].machine if trial.runs else "", machine()
    if stored_spec(ledger).get("launch", "here") == "here" and not is_from(was, here):
        raise Refused(
            f"trial {trial.number} of campaign {ledger.campaign.name!r} ran on {was}, and this machine is {here}: "
            "its score is compared with others of there, so run it again there"
        )


def _begin(ledger: Ledger, finished: History, number: int, flow_run_id: str | None) -> None:
    """Begin another attempt at a trial, unless this request has begun it.

    A request that was interrupted continues, as does a retried flow run.
    """
    check(ledger, finished, number)
    mine = cut_off = False
    for event in ledger.events():
        if event["event"] == "end":
            cut_off = False
        elif event["event"] == "rerun" and event["trial"] == number:
            cut_off, mine = True, mine or event["flow_run_id"] == flow_run_id
    if not (mine or cut_off or number in attempts.pending(ledger.path)):
        attempts.begin(ledger.path, number, ledger.attempt(number) + 1)
    if not mine:
        ledger.event("rerun", trial=number, attempt=ledger.attempt(number), flow_run_id=flow_run_id)


def _end(spec: CampaignSpec, ledger: Ledger, history: History, spent: float) -> stopping.Stop:
    """The campaign's state after the rerun: as before, unless it had failed or been interrupted, or fails now."""
    found = stopping.stop(spec, ledger.environment, history, spent, asked=False)
    before = _before(ledger)
    if before.get("state") in ("finished", "stopped") and not (found and found.state == "failed"):
        return stopping.Stop(before["state"], before["reason"])
    return found or stopping.Stop("stopped", "a trial was run again before the others were done")


def _before(ledger: Ledger) -> dict[str, Any]:
    """How the campaign ended before reruns were asked for; empty if it was interrupted."""
    last: dict[str, Any] = {}
    for event in ledger.events():
        if event["event"] == "life" and "rerun" not in event:
            last = {}
        elif event["event"] == "end":
            last = event
    return last
