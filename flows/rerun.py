"""The flow that runs a trial of an ended campaign again: a new attempt, decided like any other trial."""

from __future__ import annotations

from typing import Annotated

from prefect import State, flow
from prefect.states import Completed

from environments.plugins import Refused
from flows.campaign import measure, search
from flows.engine.certifying import certify_at_the_end
from flows.engine.night import opened
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.flow import fails_when_refused
from flows.spec.spec import option
from tasks.describe import verdict_of
from tasks.store.ledger import Ledger

Name = Annotated[str, option(..., "Name of a campaign that has ended.")]
Number = Annotated[int, option(..., "Number of a finished trial; 0 is the baseline.", ge=0)]


@flow(name="rerun", flow_run_name="{name} trial {trial} again", persist_result=True, result_serializer="json")
@fails_when_refused
def rerun(name: Name, trial: Number) -> State[str]:
    """Run a trial of a campaign again: another attempt at the same proposal, decided after all other trials."""
    ledger = Ledger.open(name)
    check(ledger, trial)
    with opened(CampaignSpec.of(**ledger.spec), rerun=trial) as night:
        spec, environment = night.spec, night.environment
        longest = spec.machine_time_for_a_trial(environment, night.history if trial else ())
        reserve = spec.time_for_the_certificate(environment, night.history, 1)
        if trial not in ledger.pending_attempts():  # else it was checked before it was killed
            night.money.check(night.history, f"trial {trial}", environment, longest + reserve)
        begin(ledger, trial)
        stop = search(night, only=trial)
        night.ending = certify_at_the_end(night, stop, measure)
        again, is_left = night.trial(trial), trial in ledger.pending_attempts()
    if night.state.is_failed():
        return night.state
    what = "is not run again yet" if is_left else f"again: {verdict_of(again.verdict, again.score)}"
    return Completed(message=f"{name}: trial {trial} {what}; {stop.reason}", data=name)


def check(ledger: Ledger, number: int) -> None:
    """Refuse a trial that is not finished, and a campaign of an earlier version."""
    ledger.check_version()
    if number not in {trial.number for trial in ledger.history()}:
        raise Refused(f"campaign {ledger.campaign.name!r} has no finished trial {number}: see `nightshift status`")


def begin(ledger: Ledger, number: int) -> None:
    """Begin another attempt, unless one was cut off, or who made it was before its end."""
    made = any(event["event"] == "rerun" and event["trial"] == number for event in ledger.cut_off())
    if not made and number not in ledger.pending_attempts():
        ledger.event("rerun", trial=number, attempt=ledger.begin_attempt(number))
