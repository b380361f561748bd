"""Approval in Prefect: a run of the flow `approve` per waiting proposal, with its diff and a form.

The run is created suspended, is never executed and needs no worker. An answer in its form reaches the campaign at its
next turn. `nightshift approve` and `nightshift reject` do the same in a terminal. Without a server there is no form.
A proposal that nobody answers in time is rejected.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING
from uuid import UUID

from httpx import HTTPStatusError
from prefect import State, flow
from prefect.client.schemas.actions import ArtifactCreate
from prefect.exceptions import ObjectNotFound
from prefect.input import RunInput, keyset_from_paused_state
from prefect.states import Completed, Paused, Running
from pydantic import Field

from flows.server.api import impatient_client
from flows.views.markdown import code, in_markdown
from tasks.describe import short_value
from tasks.store import approval
from tasks.store.approval import ApprovalAnswer, ApprovalRequest, Parked
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.system.redact import clean
from tasks.tracking.trial_run import inert, plain
from tasks.trial import Params, Proposal

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

ASK_SECONDS = 10.0
"""Time-out of a request; then the campaign goes on without the server."""
ASK_RETRIES = 3
"""Of a request that puts a proposal to the server, which on SQLite is busy while it stores events."""
REST_SECONDS = 120.0
"""How long a server that did not answer is not asked again; each request to a hanging server costs ASK_SECONDS."""
SHOWN_LINES = 400
"""Lines of a diff in the form."""


class Word(RunInput):
    """The form's fields."""

    approve: bool = Field(default=False, title="Approve", description="Train and judge it. Left off, it is rejected.")
    comment: str = Field(default="", title="Comment", description="Why; the proposer reads it.")


@flow(name="approve", flow_run_name="{campaign} trial {trial}")
def approve(campaign: str, trial: int) -> None:
    """Ask a person whether a proposal may run. Its runs are created suspended, and end with the answer."""


def ask(ledger: Ledger, number: int, proposal: Proposal, minutes: float) -> None:
    """Put a proposal on hold until it is approved or rejected."""
    run: str | None = None
    try:
        run = _suspended(ledger, number, proposal, 60 * minutes)
    except Exception as fault:  # noqa: BLE001 (whatever the server says, the terminal can still answer)
        ledger.event("approval", trial=number, asked="terminal", problem=clean(str(fault))[:1])
    write_atomic(ledger.place(number).diff, proposal.edit or "")
    approval.ask(ledger.place(number), ApprovalRequest(time.time(), time.time() + 60 * minutes, run))
    ledger.event("approval", trial=number, asked="prefect" if run else "terminal", minutes=minutes)


def collect(ledger: Ledger) -> tuple[Parked, ...]:
    """Every proposal that was put on hold, with the answers so far."""
    for parked in approval.parked(ledger.trials):
        if parked.answer:
            if not approval.is_closed(ledger.place(parked.number)):  # answered in a terminal
                _end(ledger, parked, parked.answer)
        elif answer := _answer(ledger, parked):
            settle(ledger, parked, answer)
        elif time.time() >= parked.asked.until:
            settle(ledger, parked, ApprovalAnswer(False, "time", at=time.time()))
    return tuple(approval.parked(ledger.trials))


def settle(ledger: Ledger, one: Parked, said: ApprovalAnswer) -> bool:
    """Store an answer and end the flow run that asked; whether it was the first answer."""
    if not approval.answer(ledger.place(one.number), said):
        return False
    ledger.event("answer", trial=one.number, approved=said.approved, by=said.by, comment=said.comment)
    _end(ledger, one, said)
    return True


def page(proposal: Proposal, defaults: Params) -> str:
    """A proposal in Markdown: rationale, changes and diff."""
    changed = [
        (code(name), code(short_value(defaults.get(name))), code(short_value(value)))
        for name, value in proposal.params.items()
        if defaults.get(name) != value
    ]
    why = inert(plain(proposal.rationale)) or "(the proposer does not say why)"
    parts = [f"**{proposal.proposer}** {proposal.model}".strip(), why]
    if changed:
        parts.append(in_markdown([("parameter", "baseline", "proposed"), *changed]))
    if proposal.edit:
        # A newline inside a line would make a line that does not look like a diff's.
        lines = [" ".join(clean(line)) for line in proposal.edit.split("\n")]
        more = [f"... {len(lines) - SHOWN_LINES} more lines: diff.patch"] if len(lines) > SHOWN_LINES else []
        fence = "`" * max(3, *(len(run) + 1 for line in lines for run in re.findall("`+", line)), 0)
        parts.append("\n".join([f"{fence}diff", *lines[:SHOWN_LINES], *more, fence]))
    return "\n\n".join(parts) + "\n"


def _suspended(ledger: Ledger, number: int, proposal: Proposal, seconds: float) -> str:
    """Create the suspended run; returns its id."""
    text = page(proposal, ledger.environment.defaults)
    # Not `Suspended`, which a worker would resume: the run has nothing to execute.
    state: State[None] = Paused(
        name="Suspended", timeout_seconds=int(seconds), pause_key=f"trial-{number}", reschedule=False
    )
    keys = keyset_from_paused_state(state)
    state.state_details.run_input_keyset = {str(name): key for name, key in keys.items()}
    name = ledger.campaign.name
    with impatient_client(ASK_SECONDS, ASK_RETRIES) as client:
        run = client.create_flow_run(
            approve,
            name=f"{name} trial {number}",
            parameters={"campaign": name, "trial": number},
            state=Running(),
            tags=["nightshift", name],
        )
        artifact = ArtifactCreate(key=None, type="markdown", data=text, flow_run_id=run.id)
        client.create_artifact(artifact)
        Word.with_initial_data(description=text).save(keys, flow_run_id=run.id)
        client.set_flow_run_state(run.id, state, force=True)
    return str(run.id)


def _answer(ledger: Ledger, one: Parked) -> ApprovalAnswer | None:
    """The answer given in the Prefect UI; None if there is none or the server does not answer."""
    silent = ledger.place(one.number).path / "unanswered"
    if one.asked.flow_run_id is None or (silent.exists() and time.time() - silent.stat().st_mtime < REST_SECONDS):
        return None
    run = UUID(one.asked.flow_run_id)
    try:
        with impatient_client(ASK_SECONDS) as client:
            state = client.read_flow_run(run).state
            silent.unlink(missing_ok=True)
            if state is None or state.is_paused():
                return None
            word = _word(client, run, one.number)
            if word is None:  # the run was ended by its time-out or by somebody
                late = time.time() >= one.asked.until
                return None if late else ApprovalAnswer(False, "prefect", "its run was ended", time.time())
    except ObjectNotFound:  # another server, or the run was deleted
        return None
    except Exception as fault:  # noqa: BLE001 (a server that is away says nothing, and the night goes on)
        noted = silent.exists()
        silent.touch()
        if not noted:  # recorded once, not at every check
            ledger.event("approval", trial=one.number, problem=clean(str(fault))[:1])
        return None
    return ApprovalAnswer(word.approve, "prefect", word.comment, time.time())


def _word(client: SyncPrefectClient, run: UUID, number: int) -> Word | None:
    """The submitted form; None if there is none."""
    try:
        said = client.read_flow_run_input(run, f"suspended-trial-{number}-response")
    except HTTPStatusError as problem:
        if problem.response.status_code == 404:
            return None
        raise
    return Word(**json.loads(said))


def _end(ledger: Ledger, one: Parked, said: ApprovalAnswer) -> None:
    """End the flow run that asked. A failure leaves a run behind that nobody reads."""
    approval.close(ledger.place(one.number))
    if one.asked.flow_run_id is None:
        return
    word = "Approved" if said.approved else "Rejected"
    state: State[None] = Completed(name=word, message=said.comment or said.by)
    try:
        with impatient_client(ASK_SECONDS) as client:
            client.set_flow_run_state(UUID(one.asked.flow_run_id), state, force=True)
    except Exception as fault:  # noqa: BLE001
        ledger.event("approval", trial=one.number, problem=clean(str(fault))[:1])
