"""Approval in Prefect: a run of the flow `approve` per waiting proposal, with its diff and a form.

The run is created suspended, and is never executed. An answer in its form reaches the campaign at its next turn.
`nightshift approve` and `nightshift reject` do the same in a terminal, also where no server answers.
"""

from __future__ import annotations

import time
from contextlib import suppress
from uuid import UUID

from prefect import State, flow
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.input import RunInput, keyset_from_paused_state
from prefect.states import Completed, Paused, Running
from pydantic import Field

from flows.server.server_process import impatient_client
from flows.views.terminal import code
from tasks.describe import parameter_changes
from tasks.store import approval
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.system.redact import clean
from tasks.tracking.values import inert, plain
from tasks.trial import Params, Parked, Proposal

TOO_LATE = "nobody answered in time"


class Word(RunInput):
    approve: bool = Field(default=False, title="Approve", description="Train and judge it. Left off, it is rejected.")
    comment: str = Field(default="", title="Comment", description="Why; the proposer reads it.")


@flow(name="approve", flow_run_name="{campaign} trial {trial}")
def approve(campaign: str, trial: int) -> None:
    """Ask a person whether a proposal may run. Its runs are created suspended, and end with the answer."""


def ask(ledger: Ledger, number: int, proposal: Proposal, minutes: float) -> None:
    until, run, problem = time.time() + 60 * minutes, None, ""
    write_atomic(ledger.place(number).diff, proposal.edit or "")
    try:
        run = _suspended(ledger, number, proposal, int(60 * minutes))
    except Exception as fault:  # noqa: BLE001 (whatever the server says, the terminal can still answer)
        problem = " ".join(clean(str(fault))[:1])
    approval.park(ledger, Parked(number, proposal, until, run))
    ledger.event("approval", trial=number, flow_run_id=run, problem=problem)


def collect(ledger: Ledger) -> tuple[Parked, ...]:
    """Every proposal that was put on hold, with the answers so far."""
    with suppress(Exception):  # a server that is away says nothing, and the night goes on
        _collect_forms(ledger)
    for one in approval.parked(ledger):
        if one.state == "waiting" and time.time() >= one.until:
            approval.answer(ledger, one.number, False, TOO_LATE, by="time")
    return approval.parked(ledger)


def page(proposal: Proposal, defaults: Params) -> str:
    """A proposal in Markdown: rationale, changes and diff."""
    changed = [code(" ".join(clean(change))) for change in parameter_changes(proposal.params, defaults)]
    parts = [f"**{proposal.proposer}** {proposal.model}".strip(), inert(plain(proposal.rationale)), *changed]
    if proposal.edit:
        fence = "`" * (3 + proposal.edit.count("`"))  # no fence in the diff ends ours
        parts.append("\n".join([f"{fence}diff", *(" ".join(clean(line)) for line in proposal.edit.split("\n")), fence]))
    return "\n\n".join(filter(None, parts)) + "\n"


def _suspended(ledger: Ledger, number: int, proposal: Proposal, seconds: int) -> str:
    name, text = ledger.campaign.name, page(proposal, ledger.environment.defaults)
    # Not `Suspended`, which a worker would resume: the run has nothing to execute. The campaign rejects it in time, and
    # Prefect ends it, as failed, only where the campaign is gone.
    state: State[None] = Paused(
        name="Suspended", timeout_seconds=2 * seconds, pause_key=f"trial-{number}", reschedule=False
    )
    keys = keyset_from_paused_state(state)
    state.state_details.run_input_keyset = {str(key): value for key, value in keys.items()}
    with impatient_client(retries=3) as client:  # on SQLite it is busy while it stores events
        parameters = {"campaign": name, "trial": number}
        run = client.create_flow_run(
            approve,
            f"{name} trial {number}",
            parameters,
            state=Running(),
            tags=[name],  # not `nightshift`: it sends no heartbeat
        )
        Word.with_initial_data(description=text).save(keys, flow_run_id=run.id)
        client.set_flow_run_state(run.id, state, force=True)
    return str(run.id)


def _collect_forms(ledger: Ledger) -> None:
    """Store the answers that were given in Prefect, and end the runs of what was answered elsewhere."""
    newest = approval.parked(ledger)[-200:]  # a server returns no more at once
    asked = {UUID(one.flow_run_id): one for one in newest if one.flow_run_id}
    if not asked:
        return
    with impatient_client() as client:
        for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=list(asked)))):
            one, state = asked[run.id], run.state or Paused()
            if one.state == "waiting" and not state.is_paused():
                forms = client.filter_flow_run_input(run.id, f"suspended-trial-{one.number}-response", 1, set())
                ended = "its run was ended" if time.time() < one.until else TOO_LATE
                word = Word(**forms[0].decoded_value) if forms else Word(comment=ended)
                approval.answer(ledger, one.number, word.approve, word.comment, by="prefect")
                one = next(each for each in approval.parked(ledger) if each.number == one.number)
            if one.state != "waiting" and not state.is_final():
                end: State[None] = Completed(name=one.state.capitalize(), message=one.words)
                client.set_flow_run_state(run.id, end, force=True)
