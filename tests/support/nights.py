"""The engine's loop over a campaign on disk, in a flow of this process at a real server; and questions of certificates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flows.engine.certifying import Question
from flows.engine.night import Night
from flows.engine.recovery import cancellable
from flows.spec.campaign_spec import CampaignSpec
from tasks.checkpoint import results_in
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.trial import History
from tests.support.prefect_api import prefect_at

T = TypeVar("T")


def on_night(url: str, ledger: Ledger, work: Callable[[Night], T], history: History | None = None) -> T:
    """Hold a campaign as the flow `campaign` does, without its views, and do something with it.

    Args:
        history: The decided trials; None: those of the ledger.
    """
    from prefect import flow, runtime

    made: list[T] = []

    @flow(persist_result=False)
    def night(environment: str) -> None:
        with cancellable(), campaign_lock.hold(ledger, str(runtime.flow_run.id)), results_in(ledger.results):
            one = Night(spec_of(ledger), ledger, ledger.history() if history is None else history)
            try:
                made.append(work(one))
            finally:
                one.end_runs()

    with prefect_at(url):
        night(ledger.campaign.environment)
    return made[0]


def spec_of(ledger: Ledger) -> CampaignSpec:
    return CampaignSpec.of(**ledger.spec)


def question(ledger: Ledger, history: History | None = None) -> Question:
    """What a certificate asks at the end of a campaign."""
    return Question(spec_of(ledger), ledger, ledger.history() if history is None else history)
