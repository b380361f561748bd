"""`nightshift propose`, `approve` and `reject`: proposals and approvals from the terminal."""

from __future__ import annotations

import time
from pathlib import Path

from environments.plugins import Refused
from flows.cli.arguments import parse_params, placed, read_diff
from flows.views import terminal
from tasks.editing.edits import patched
from tasks.proposing.validation import originals
from tasks.store import approval, campaign_lock, inbox
from tasks.store.approval import ApprovalAnswer, Parked
from tasks.store.inbox import InboxProposal
from tasks.store.ledger import Ledger
from tasks.trial import best


def propose(campaign: str, params: str, diff: Path | None, base: int | None, rationale: str, as_json: bool) -> int:
    """Put a proposal into a campaign's inbox; the command's exit code.

    Args:
        base: The trial that `diff` applies to; None: the champion.

    Raises:
        Refused: it cannot be tried as it is.
    """
    ledger = Ledger.open(campaign)
    champion = best(ledger.history())
    values = parse_params(params, "--params")
    if not values and diff is None:
        raise Refused("a proposal needs --params, --diff or both: say what is to be different")
    if base is not None and diff is None:
        raise Refused(f"--base {base}: it names the trial that --diff applies to: give --diff too, or leave it out")
    start = champion.proposal.params if champion else ledger.environment.defaults
    tunable = {name: value for name, value in start.items() if name in ledger.environment.space}
    complete = ledger.environment.complete({**tunable, **values})
    if diff and base is None and champion:
        base = champion.number  # it may be another one when the proposal is tried
    files = _files(ledger, diff, base) if diff else None
    name = inbox.add(ledger.path, InboxProposal(values, files, rationale, base=base))
    ledger.event("idea", inbox=name, rationale=rationale)
    if as_json:
        terminal.print_json({"campaign": campaign, "inbox": name, "params": complete})
    else:
        when = "next" if campaign_lock.is_running(ledger) else "first when the campaign is resumed"
        print(f"{campaign}: proposal {name} is in the inbox; it is tried {when}")
    return 0


def say(campaign: str, number: int | None, approved: bool, comment: str, as_json: bool) -> int:
    """Approve or reject a pending proposal; the command's exit code.

    Args:
        number: Of its trial; None: the only pending one.

    Raises:
        Refused: it is not pending.
    """
    ledger = Ledger.open(campaign)
    trial = _pending(ledger, number).number
    answer = ApprovalAnswer(approved, "terminal", comment, time.time())
    if not approval.answer(ledger.place(trial), answer):
        raise Refused(f"trial {trial} of {campaign} was answered a moment ago: see nightshift status")
    ledger.event("answer", trial=trial, approved=approved, by="terminal", comment=comment)
    word = "approved" if approved else "rejected"
    later = "" if campaign_lock.is_running(ledger) or not approved else "; it runs first when the campaign is resumed"
    if as_json:
        terminal.print_json({"campaign": campaign, "trial": trial, "answer": word})
    else:
        print(f"{campaign}: trial {trial} is {word}{later}")
    return 0


def _pending(ledger: Ledger, number: int | None) -> Parked:
    """The pending proposal with that number, or the only one."""
    parked = {proposal.number: proposal for proposal in approval.parked(ledger.trials)}
    pending = {key: proposal for key, proposal in parked.items() if proposal.state == "waiting"}
    name = ledger.campaign.name
    if number is None and len(pending) == 1:
        return next(iter(pending.values()))
    if number in pending:
        return pending[number]
    if number in parked:
        raise Refused(f"trial {number} of {name} is not pending any more: {parked[number].words}")
    raise Refused(f"name a pending trial of {name}; pending: {', '.join(map(str, pending)) or 'none'}")


def _files(ledger: Ledger, diff: Path, base: int | None) -> dict[str, str]:
    """The editable files after the diff."""
    text = read_diff(diff, "--diff")
    history = ledger.history()
    start = best(history) if base is None else next((t for t in history if t.number == base), None)
    if base is not None and start is None:
        raise Refused(f"--base {base}: campaign {ledger.campaign.name!r} has no such trial")
    program = originals(ledger.environment, ledger.program)
    if start and start.proposal.edit:
        program = patched(program, start.proposal.edit)
    of = f"trial {start.number}'s program" if start else "the baseline"
    return patched(program, placed(text, f"--diff {diff}, applied to {of}", program, ledger.environment.editable))
