"""The flow that certifies a campaign's champion later, again, in other environments, or for another budget."""

from __future__ import annotations

from typing import Annotated

from prefect import State, flow
from prefect.states import Completed

from flows.campaign import measure
from flows.engine import certifying, stopping
from flows.engine.night import ensure_prepared, opened
from flows.engine.transfer import longest, questions
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.flow import fails_when_refused
from flows.spec.spec import CERTIFY, option
from tasks.describe import setting
from tasks.store.ledger import Ledger, ended_search

Name = Annotated[str, option(..., "Name of a campaign that has ended.")]
On = Annotated[list[str], CERTIFY["on"]]
Runs = Annotated[int | None, CERTIFY["runs"]]
Budget = Annotated[str, CERTIFY["budget"]]


@flow(name="certify", flow_run_name="{name} certificate", persist_result=True, result_serializer="json")
@fails_when_refused
def certify(name: Name, on: On = [], runs: Runs = None, budget: Budget = "") -> State[str]:  # noqa: B006 (Prefect shows the default)
    """Compare fresh runs of a campaign's champion with fresh runs of its baseline."""
    ledger = Ledger.open(name)
    before, outcomes = ended_search(ledger), list[str]()
    ledger.check_version()
    with opened(CampaignSpec.of(**ledger.spec), certify=True) as night:
        for question in questions(ledger, on, budget):
            made = question.just_made
            ensure_prepared(ledger, question.transfer)
            there, seconds = question.environment, longest(question, runs, parallel=1)
            if not (made or question.declared):  # else it was checked before it was killed
                night.money.check(night.history, f"the certificate in {there.name}", there, seconds)
            certificate = made or certifying.without_ablation(question)
            certificate = certificate or certifying.certify(night, question, measure, runs)
            if certificate is None or not certifying.also_ablate(night, question, certificate, measure):
                reason = (stopping.full(ledger.path) or stopping.ASKED).reason
                outcomes.append(reason.replace("nightshift resume", f"nightshift certify {name}"))
                break
            outcome = "passed" if certificate.passed else certificate.reason
            outcomes.append(f"{setting(certificate.environment, certificate.conditions.budget)}: {outcome}")
        night.ending = stopping.as_before(night, before, "certified before its trials were done")
        own = certifying.Question(night.spec, ledger, night.history)
        if night.rule.certifies and not before and not own.answers_on_champion:  # killed before its own was made
            night.ending = stopping.Stop("stopped", "its own certificate is not made; `nightshift resume` goes on")
    return Completed(message="; ".join(outcomes), data=name)
