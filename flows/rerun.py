"""The flow that runs a trial of an ended campaign again and recomputes later verdicts (flows/engine/redecide.py)."""

from __future__ import annotations

from typing import Annotated

from prefect import State, flow, runtime
from prefect.states import Completed, Failed

from environments.plugins import Refused
from flows.engine import run_certificate, stopping
from flows.engine.cancelling import cancellable, reported
from flows.engine.preparation import ensure_prepared
from flows.engine.recovery import check_progress, crash_the_dead, presence, wait_for_the_other
from flows.engine.redecide import finish_pending
from flows.engine.runner import Runner
from flows.report.write import write_report
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.form import titled
from flows.spec.naming import tag_existing
from flows.spec.refusal import fails_when_refused
from flows.spending.budget import CampaignBudget, gpus_of
from flows.views import run_log
from flows.views.artifacts import Artifacts
from flows.views.status import CampaignEnd, stored_spec
from tasks.record import reconcile
from tasks.store import attempts
from tasks.store.campaign_lock import Life, end_of_the_search
from tasks.store.ledger import Ledger, machine
from tasks.task_messages import plain, verdict_of
from tasks.tracking.outbox import Outbox
from tasks.trial import History, is_from

Name = Annotated[str, titled("Campaign", "Name of a campaign that has ended.")]
Number = Annotated[int, titled("Trial", "Number of a finished trial; 0 is the baseline.", ge=0)]


@flow(
    name="rerun", flow_run_name="{name} trial {trial} again", on_running=[tag_existing], persist_result=True,
    result_serializer="json",
)  # fmt: skip
@fails_when_refused
def rerun(name: Name, trial: Number) -> State[str]:
    """Run a trial of a campaign again, and recompute every later verdict."""
    ledger, run = Ledger.open(name), runtime.flow_run
    spec = CampaignSpec.of(**stored_spec(ledger))
    wait_for_the_other(ledger, run.id)
    with (
        reported(ledger),
        cancellable(),
        Life(ledger, flow_run_id=run.id, page=run.ui_url, rerun=trial) as life,
        presence(run.id),
    ):
        check_progress(ledger, run.id)
        crash_the_dead(ledger, run.id)
        ensure_prepared(ledger, spec.launch)
        finished = reconcile(ledger)
        slots = spec.slots(ledger.environment)
        money = CampaignBudget(spec, ledger, gpus_of(spec, ledger.environment, slots))
        longest = spec.machine_time_for_a_trial(ledger.environment, finished if trial else ())
        money.check(
            finished, f"trial {trial}", longest + spec.time_for_the_certificate(ledger.environment, finished, 1)
        )
        _begin(ledger, finished, trial, run.id)
        run_log.begin(ledger, finished)
        ledger.event("slots", parallel=spec.parallel, locks=slots.locks if spec.launch == "here" else {})
        history = finish_pending(spec, ledger, slots, finished)
        outbox = Outbox(ledger, spec.tracking, run.id, history)
        with Artifacts(ledger, run.id, write_report) as artifacts:
            artifacts.show(history)
            end = _end(spec, ledger, history, life.spent)
            if end.state == "finished":
                certified = run_certificate.at_the_end(Runner(spec, ledger, history, slots))
                end = end if certified else stopping.ASKED
            artifacts.show(history, CampaignEnd(end.state, end.reason))
            run_log.end(ledger, history, end.reason)
        outbox.close(end.state)
        ledger.event("end", state=end.state, reason=end.reason)
    (again,) = (each for each in history if each.number == trial)
    message = f"{name}: trial {trial} again: {plain(verdict_of(again.verdict, again.score)).words}; {end.reason}"
    return Failed(message=message) if end.state == "failed" else Completed(message=message, data=name)


def check(ledger: Ledger, finished: History, number: int) -> None:
    """Refuse a trial that is not finished, or that ran on another machine (tasks/deciding/comparable.py)."""
    name, trials = ledger.campaign.name, {trial.number: trial for trial in finished}
    if number in trials:
        runs = trials[number].runs
        ran_on, here = runs[-1].machine if runs else "", machine()
        if stored_spec(ledger).get("launch", "here") == "here" and not is_from(ran_on, here):
            raise Refused(
                f"trial {number} of campaign {name!r} ran on {ran_on}, and this machine is {here}: scores of "
                "different machines are not compared, so run it again there"
            )
        return
    if number >= 0 and ledger.place(number).path.is_dir():
        raise Refused(f"trial {number} of campaign {name!r} is not finished: nightshift resume {name} goes on with it")
    has = f"it has {min(trials)} to {max(trials)}" if trials else "none is finished yet"
    raise Refused(f"campaign {name!r} has no trial {number}: {has}")


def _begin(ledger: Ledger, finished: History, number: int, flow_run_id: str | None) -> None:
    """Begin another attempt at a trial, unless one has begun for this flow run or for a rerun that was cut off."""
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
    """The campaign's end after the rerun: as before, unless it had failed or been cut off, or fails now."""
    due = stopping.stop(spec, ledger.environment, history, spent, asked=False)
    before = end_of_the_search(ledger, ("certify", "rerun"))
    if before.get("state") in ("finished", "stopped") and not (due and due.state == "failed"):
        return stopping.Stop(before["state"], before["reason"])
    return due or stopping.Stop("stopped", "a trial was run again before the others were done")
