"""`nightshift propose`, `approve` and `reject`: proposals and approvals from the terminal."""

from __future__ import annotations

from pathlib import Path

from environments.plugins import Refused
from flows.cli.arguments import parse_params, placed, read_diff
from flows.views import terminal
from tasks.editing.edits import patched
from tasks.proposing.validation import originals
from tasks.store import approval, inbox
from tasks.store.inbox import InboxProposal
from tasks.store.ledger import Ledger
from tasks.trial import History, best


def propose(campaign: str, params: str, diff: Path | None, base: int | None, rationale: str, as_json: bool) -> int:
    """Put a proposal into a campaign's inbox; the command's exit code.

    Args:
        base: The trial that `diff` applies to; None: the champion.

    Raises:
        Refused: it cannot be tried as it is.
    """
    ledger = Ledger.open(campaign)
    history = ledger.history()
    champion, values = best(history), parse_params(params, "--params")
    if not values and diff is None:
        raise Refused("a proposal needs --params, --diff or both: say what is to be different")
    if base is not None and diff is None:
        raise Refused(f"--base {base}: it names the trial that --diff applies to: give --diff too, or leave it out")
    start = champion.proposal.params if champion else ledger.environment.defaults
    tunable = {name: value for name, value in start.items() if name in ledger.environment.space}
    complete, files = ledger.environment.complete({**tunable, **values}), None
    if diff:
        # Stored with it, since the champion may be another one when the proposal is tried.
        base = base if base is not None else champion.number if champion else 0
        files = _files(ledger, history, diff, base)
    name = inbox.add(ledger.path, InboxProposal(values, files, rationale, base))
    ledger.event("idea", inbox=name, rationale=rationale)
    if as_json:
        terminal.print_json({"campaign": campaign, "inbox": name, "params": complete})
    else:
        print(f"{campaign}: proposal {name} is in the inbox; it is tried next")
    return 0


def say(campaign: str, number: int | None, approved: bool, comment: str, as_json: bool) -> int:
    """Approve or reject a pending proposal; the command's exit code.

    Args:
        number: Of its trial; None: the only pending one.

    Raises:
        Refused: it is not pending.
    """
    ledger = Ledger.open(campaign)
    pending = {one.number: one for one in approval.parked(ledger) if one.state == "waiting"}
    number = next(iter(pending)) if number is None and len(pending) == 1 else number
    if number is None or number not in pending:
        raise Refused(f"name a pending trial of {campaign}; pending: {', '.join(map(str, pending)) or 'none'}")
    approval.answer(ledger, number, approved, comment, by="terminal")
    word = "approved" if approved else "rejected"
    if as_json:
        terminal.print_json({"campaign": campaign, "trial": number, "answer": word})
    else:
        print(f"{campaign}: trial {number} is {word}")
    return 0


def _files(ledger: Ledger, history: History, diff: Path, base: int) -> dict[str, str]:
    """The editable files of a trial after the diff."""
    start = {trial.number: trial for trial in history}.get(base)
    if start is None and base:
        raise Refused(f"--base {base}: campaign {ledger.campaign.name!r} has no such trial")
    program = originals(ledger.environment, ledger.program)
    if start and start.proposal.edit:
        program = patched(program, start.proposal.edit)
    what = f"--diff {diff}, applied to trial {base}'s program"
    return patched(program, placed(read_diff(diff, "--diff"), what, program, ledger.environment.editable))
