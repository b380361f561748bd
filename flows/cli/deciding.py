"""The verbs that compare programs and steer a campaign: certify, compare, propose, approve, reject."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from environments.plugins import Refused
from flows.cli.arguments import parse_params, placed, read_diff
from flows.cli.options import Budget, Isolation, Json, On, Runs, Seed, Server, Settings, Trust, Unsandboxed  # fmt: skip
from flows.cli.seeing import newest
from flows.server import server_process
from flows.views.terminal import print_json
from tasks.editing.edits import patched
from tasks.store import approval, inbox
from tasks.store.ledger import Ledger
from tasks.system.home import home
from tasks.trial import best


def certify(
    campaign: str | None = None,
    /,
    *,
    on: On = None,
    runs: Runs = None,
    budget: Budget = "",
    trust: Trust = False,
    server: Server = None,
    json: Json = False,
) -> int:
    """Test the champion of CAMPAIGN (default: the newest) against its baseline on fresh runs.

    Example: nightshift certify night --on ./harder --runs 10
    """
    server_process.settle_in(home())
    from flows.cli import foreground

    return foreground.certify(campaign or newest(), on or [], runs, budget, trust, server, json)


def compare(
    a: str,
    b: str,
    /,
    *,
    on: Annotated[str | None, Parameter("--on", help="The environment. Default: that of the named campaign.")] = None,
    runs: Annotated[
        int | None,
        Parameter("--runs", help="Fresh runs of each side. Default: 5, or 2 in a deterministic environment."),
    ] = None,
    set_: Settings = None,
    trust: Trust = False,
    seed: Seed = None,
    isolation: Isolation = "auto",
    allow_unsandboxed: Unsandboxed = False,
    json: Json = False,
) -> int:
    """Compare fresh runs of A and B: baseline, JSON, a .json or .diff file, CAMPAIGN, CAMPAIGN/baseline, CAMPAIGN/7.

    Example: nightshift compare night '{"learning_rate": 0.001}' --runs 10
    """
    from flows.cli import comparing

    return comparing.run(a, b, on, runs, set_ or [], trust, seed, isolation, allow_unsandboxed, json)


def propose(
    campaign: str,
    /,
    *,
    params: str = "{}",
    diff: Path | None = None,
    base: int | None = None,
    rationale: str = "",
    json: Json = False,
) -> int:
    """Put a proposal into CAMPAIGN's inbox. It is tried next.

    Example: nightshift propose night --params '{"learning_rate": 0.001}' --rationale "half the step"

    Args:
        params: JSON: values that replace the champion's.
        diff: Unified diff of the editable files, against --base.
        base: Trial that the diff applies to. Default: the champion.
        rationale: Reason for the proposal.
    """
    ledger = Ledger.open(campaign)
    champion, values = best(ledger.history()), parse_params(params, "--params")
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
        files = _edited_files(ledger, diff, base)
    name = inbox.add(ledger.path, inbox.InboxProposal(values, files, rationale, base))
    ledger.event("idea", inbox=name, rationale=rationale)
    if json:
        print_json({"campaign": campaign, "inbox": name, "params": complete})
    else:
        print(f"{campaign}: proposal {name} is in the inbox; it is tried next")
    return 0


def _edited_files(ledger: Ledger, diff: Path, base: int) -> dict[str, str]:
    """The editable files of a trial after the diff. Refused if there is no such trial, or the diff does not apply."""
    from tasks.proposing.validation import originals  # imports Prefect

    start = {trial.number: trial for trial in ledger.history()}.get(base)
    if start is None and base:
        raise Refused(f"--base {base}: campaign {ledger.campaign.name!r} has no such trial")
    program = originals(ledger.environment, ledger.program)
    if start and start.proposal.edit:
        program = patched(program, start.proposal.edit)
    what = f"--diff {diff}, applied to trial {base}'s program"
    return patched(program, placed(read_diff(diff, "--diff"), what, program, ledger.environment.editable))


def approve(campaign: str, trial: int | None = None, /, *, comment: str = "", json: Json = False) -> int:
    """Approve a pending TRIAL of CAMPAIGN (default: the only one).

    Example: nightshift approve night 7 --comment "try it"

    Args:
        comment: Reason; the proposer reads it.
    """
    return _answer(campaign, trial, True, comment, json)


def reject(campaign: str, trial: int | None = None, /, *, comment: str = "", json: Json = False) -> int:
    """Reject a pending TRIAL of CAMPAIGN (default: the only one).

    Example: nightshift reject night 7 --comment "it drops the value loss"

    Args:
        comment: Reason; the proposer reads it.
    """
    return _answer(campaign, trial, False, comment, json)


def _answer(campaign: str, number: int | None, approved: bool, comment: str, as_json: bool) -> int:
    """Answer a pending proposal. Refused if the trial is not pending, or none is named and several are."""
    ledger = Ledger.open(campaign)
    pending = [one.number for one in approval.parked(ledger) if one.state == "waiting"]
    number = pending[0] if number is None and len(pending) == 1 else number
    if number is None or number not in pending:
        raise Refused(f"name a pending trial of {campaign}; pending: {', '.join(map(str, pending)) or 'none'}")
    approval.answer(ledger, number, approved, comment, by="terminal")
    word = "approved" if approved else "rejected"
    if as_json:
        print_json({"campaign": campaign, "trial": number, "answer": word})
    else:
        print(f"{campaign}: trial {number} is {word}")
    return 0
