"""The verbs that compare programs and steer a campaign: certify, compare, propose, approve, reject."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from environments.plugins import Refused
from flows.cli import running
from flows.cli.arguments import overrides_only, parse_params, placed, read_diff
from flows.cli.options import Budget, Isolation, Json, On, Runs, Server, Settings, Trust, Unsandboxed  # fmt: skip
from flows.cli.seeing import newest
from flows.spec import permissions
from flows.spec.spec import lasting
from flows.views.terminal import clean, tell
from tasks.editing.edits import patched
from tasks.store import approval, campaign_lock, inbox
from tasks.store.ledger import Ledger
from tasks.system.redact import scrub_text
from tasks.trial import best

FORMS = ("", "a b", "a b on", "a b train eval", "optuna train eval", "b optuna train eval", "rl-zoo")
"""The options of `compare` that name sides, as they go together."""
UNCLEAR = (
    "give two sides: A and B (with --on ENVIRONMENT if neither is of a campaign), or --train and --eval with --a and "
    "--b or --optuna, or --rl-zoo alone; or none for the last comparison (see nightshift compare --help)"
)


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
    from flows.certify import certify as flow  # imports Prefect
    from flows.engine import certifying
    from flows.engine.transfer import cost, questions

    ledger, transfers = Ledger.open(campaign or newest()), list(dict.fromkeys(map(lasting, on or [])))
    campaign_lock.check_idle(ledger)
    ledger.verify()
    for reference in transfers:
        permissions.require_named(reference, {}, trust)
    every = questions(ledger, transfers, budget, looking=True)
    for question in every:
        if reason := certifying.nothing_to_certify(question, runs):
            raise Refused(f"campaign {ledger.campaign.name!r} cannot be certified: {reason}")
    for question in every if budget or transfers else ():
        for line in (cost(question, runs), *(f"  left out there: {one}" for one in question.conditions.left_out)):
            print(clean(line), file=sys.stderr, flush=True)
    parameters = {"name": ledger.campaign.name, "on": transfers, "runs": runs, "budget": budget}
    return running.run_and_show(flow, parameters, server, json)


def compare(
    a: str | None = None,
    b: str | None = None,
    *,
    on: str | None = None,
    train: str = "",
    eval_: Annotated[str, Parameter("--eval")] = "",
    optuna: str | None = None,
    rl_zoo: str | None = None,
    minutes: Annotated[float, Parameter(validator=Number(gt=0, lte=60 * 24 * 7))] = 60.0,
    minimize: Annotated[bool | None, Parameter(negative="--maximize")] = None,
    runs: str = "",
    more: str = "",
    set_: Settings = None,
    trust: Trust = False,
    isolation: Isolation = "auto",
    allow_unsandboxed: Unsandboxed = False,
    json: Json = False,
) -> int:
    """Is A better than B? Fresh runs of both. Exits with 0: A is, 3: B is, 1: neither was shown.

    A side is baseline, JSON, a .json or .diff file, CAMPAIGN, CAMPAIGN/baseline or CAMPAIGN/7.
    With --train no environment is needed. Without any side: the last comparison.

    Example: nightshift compare night '{"learning_rate": 0.001}' --runs 10

    Example: nightshift compare --train "python train.py --config {config} --seed {seed} --out {out}"
    --eval "python eval.py {out}" --a tuned.yml --b default.yml --runs 5v3

    Args:
        a: The one side; with --train a configuration file, or JSON.
        b: The other.
        on: The environment. Default: that of the named campaign.
        train: Your training command. {config}: the configuration, or {lr}: a value of it; {seed}; {out}: a folder.
        eval_: Command that prints the score of what lies in {out}, as its last number.
        optuna: With --train: study.db, whose best trial is A. B is --b, or its median trial; `default`: no parameter.
        rl_zoo: ppo.yml#CartPole-v1 or logs/ppo/CartPole-v1_1: tuned hyperparameters against SB3's defaults.
        minutes: With --train or --rl-zoo: of one training at most. Default: 60.
        minimize: With --train: a lower score is better. Default: as in the study, else a higher one.
        runs: Fresh runs of each side, 5 or 5v3. Default: 5, or 2 in a deterministic environment.
        more: So many runs more, of the named or the last comparison.
    """
    from flows.cli import comparing, own_script, single_runs  # these import Prefect

    given = {"a": a, "b": b, "on": on, "train": train, "eval": eval_, "optuna": optuna, "rl-zoo": rl_zoo}
    if {name for name, value in given.items() if value} not in [{*form.split()} for form in FORMS]:
        raise Refused(UNCLEAR)
    fresh, further = (comparing.parse_runs(text) if text else None for text in (runs, more))
    overrides, sandbox = overrides_only(set_ or []), single_runs.isolated(isolation, allow_unsandboxed)
    with TemporaryDirectory() as folder:
        draft, question = Path(folder), None
        if rl_zoo:
            question = own_script.of_rl_zoo(rl_zoo, minutes, draft, overrides)
        elif train:
            named, down = own_script.of_study(optuna, b) if optuna else (((str(a), str(a)), (str(b), str(b))), False)
            down = down if minimize is None else minimize
            if down and minimize is None:
                print(f"as in the study, less of what {eval_!r} prints is better; else --maximize", file=sys.stderr)
            question = own_script.question(
                train, eval_, *named, draft, overrides, folder=Path.cwd(), minutes=minutes, minimize=down
            )
        elif a and b:
            question = single_runs.between(a, b, on, overrides, trust)
        if question:
            match = comparing.declare(question, fresh, sandbox)
        else:
            match = comparing.reopen(comparing.newest(), sandbox)
    return comparing.show(match.with_more(further) if further else match, json)


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
    history, values = ledger.history(), parse_params(params, "--params")
    champion, trials = best(history), {trial.number: trial for trial in history}
    if not values and diff is None:
        raise Refused("a proposal needs --params, --diff or both: say what is to be different")
    if base is not None and (diff is None or (base and base not in trials)):
        raise Refused(f"--base {base}: it names the finished trial of {campaign} that --diff applies to")
    start = champion.proposal.params if champion else ledger.environment.defaults
    tunable = {name: value for name, value in start.items() if name in ledger.environment.space}
    complete, files = ledger.environment.complete({**tunable, **values}), None
    if diff:
        from tasks.proposing.validation import originals  # imports Prefect

        # Stored with it, since the champion may be another one when the proposal is tried.
        base = base if base is not None else champion.number if champion else 0
        program, edit = originals(ledger.environment, ledger.program), trials[base].proposal.edit if base else None
        program = patched(program, edit) if edit else program
        what = f"--diff {diff}, applied to trial {base}'s program"
        files = patched(program, placed(read_diff(diff, "--diff"), what, program, ledger.environment.editable))
    rationale = scrub_text(rationale)
    name = inbox.add(ledger.path, inbox.InboxProposal(values, files, rationale, base))
    ledger.event("idea", inbox=name, rationale=rationale)
    document = {"campaign": campaign, "inbox": name, "params": complete}
    tell(document, f"{campaign}: proposal {name} is in the inbox; it is tried before any other", json)
    return 0


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
    tell({"campaign": campaign, "trial": number, "answer": word}, f"{campaign}: trial {number} is {word}", as_json)
    return 0
