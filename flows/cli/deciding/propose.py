"""`nightshift propose`, `approve` and `reject`: what a person, or an outside agent, says to a campaign."""

from __future__ import annotations

import time
from pathlib import Path

from environments.plugins import Refused
from flows.cli.running.single_run import parse_params
from flows.views import terminal
from tasks.editing.edits import EditFailed, patched
from tasks.proposing.validation import originals
from tasks.store import approval, inbox, life
from tasks.store.approval import ApprovalAnswer, Parked
from tasks.store.inbox import InboxProposal
from tasks.store.ledger import Ledger
from tasks.system.redact import clean
from tasks.trial import Params, best


def propose(
    campaign: str, params: str, diff: Path | None, base: int | None, rationale: str, as_json: bool
) -> int:
    """Leave an idea in a campaign's inbox; the command's exit code.

    Raises:
        Refused: it cannot be tried as it is, with the reason.
    """
    ledger = Ledger.open(campaign)
    history = ledger.history()
    champion = best(history)
    values = parse_params(params, "--params")
    if not values and diff is None:
        raise Refused("an idea needs --params, --diff or both: say what is to be different")
    start = dict(champion.proposal.params) if champion else ledger.environment.defaults
    complete = ledger.environment.complete({**_own(ledger, start), **values})
    name = inbox.add(ledger.path, InboxProposal(complete, _files(ledger, diff, base), rationale))
    ledger.event("idea", inbox=name, rationale=rationale)
    if as_json:
        terminal.print_json({"campaign": campaign, "inbox": name, "params": complete})
    else:
        when = "next" if life.is_running(ledger) else "first when the campaign is resumed"
        print(f"{campaign}: idea {name} is in the inbox; it is tried {when}")
    return 0


def say(campaign: str, number: int | None, approved: bool, comment: str, as_json: bool) -> int:
    """Answer for a proposal that waits; the command's exit code.

    Raises:
        Refused: it does not wait.
    """
    ledger = Ledger.open(campaign)
    one = _waiting(ledger, number)
    said = ApprovalAnswer(approved, "terminal", comment, time.time())
    if not approval.answer(ledger.place(one.number), said):
        raise Refused(f"trial {one.number} of {campaign} was answered a moment ago: see nightshift status")
    ledger.event("answer", trial=one.number, approved=approved, by="terminal", comment=comment)
    word = "approved" if approved else "rejected"
    later = "" if life.is_running(ledger) or not approved else "; it runs first when the campaign is resumed"
    if as_json:
        terminal.print_json({"campaign": campaign, "trial": one.number, "answer": word})
    else:
        print(f"{campaign}: trial {one.number} is {word}{later}")
    return 0


def _waiting(ledger: Ledger, number: int | None) -> Parked:
    """The proposal that is meant."""
    every = {one.number: one for one in approval.parked(ledger.trials)}
    open_ = {key: one for key, one in every.items() if one.state == "waiting"}
    name = ledger.campaign.name
    if number is None and len(open_) == 1:
        return next(iter(open_.values()))
    if number in open_:
        return open_[number]
    if number in every:
        raise Refused(f"trial {number} of {name} does not wait any more: {every[number].words}")
    waits = ", ".join(map(str, open_)) or "none"
    raise Refused(f"name a trial of {name} that waits for a word; waiting: {waits}")


def _own(ledger: Ledger, params: Params) -> Params:
    """Those of the space: the fixed ones are the environment's."""
    return {name: value for name, value in params.items() if name in ledger.environment.space}


def _files(ledger: Ledger, diff: Path | None, base: int | None) -> dict[str, str] | None:
    """The editable files as the diff leaves them; None without one."""
    if diff is None:
        return None
    try:
        text = diff.read_text()
    except (OSError, UnicodeDecodeError) as unreadable:
        raise Refused(f"--diff {diff}: {unreadable}") from unreadable
    history = ledger.history()
    found = best(history) if base is None else next((t for t in history if t.number == base), None)
    if base is not None and found is None:
        raise Refused(f"--base {base}: campaign {ledger.campaign.name!r} has no such trial")
    program = originals(ledger.environment, ledger.program)
    if found and found.proposal.edit:
        program = patched(program, found.proposal.edit)
    try:
        after = patched(program, text)
    except EditFailed as wrong:
        of = f"trial {found.number}'s program" if found else "the baseline"
        raise Refused(f"--diff {diff}, applied to {of}: {' '.join(clean(str(wrong)))}") from wrong
    for name in sorted(program.keys() - after.keys()):
        raise Refused(f"--diff {diff} removes {name!r}: an edit may change and add files, nothing else")
    for name in after:
        if name not in ledger.environment.editable:
            editable = ", ".join(ledger.environment.editable)
            raise Refused(f"--diff {diff} touches {name!r}; editable: {editable}")
    return after
