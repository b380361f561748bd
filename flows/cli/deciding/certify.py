"""`nightshift certify`: certify a campaign's champion later, again, in other environments, or for another budget."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import environments
from environments.plugins import Refused
from flows.certify import certify as certify_flow
from flows.cli import consent
from flows.cli.running.flow_run import run_and_show
from flows.engine import certifying
from flows.engine.transfer import check_fits, cost, questions
from flows.server import server_process
from flows.spec.environment import checked_environment
from flows.views import terminal
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system.home import home


def certify(
    name: str, on: str | None, runs: int | None, trust: bool, server: str | None, as_json: bool, budget: str = ""
) -> int:
    """Certify a campaign's champion; the command's exit code. What runs elsewhere tells its cost first.

    Raises:
        Refused: the campaign is running, or there is nothing to certify.
    """
    ledger = Ledger.open(name)
    campaign_lock.check_idle(ledger)
    if runs is not None and not 2 <= runs <= 100:
        raise Refused(f"--runs {runs}: give 2 to 100 runs of each arm")
    elsewhere = list(dict.fromkeys(_lasting(reference) for reference in (on or "").split(",") if reference))
    ledger.verify()
    for reference in elsewhere:
        consent.ask_about(reference, {}, trust)
        check_fits(ledger.environment, checked_environment(reference, {}))
    if reason := certifying.no_champion(ledger.history()):
        raise Refused(f"campaign {name!r} cannot be certified: {reason}")
    every = questions(ledger, elsewhere, budget, looking=True)
    for question in every:
        if reason := certifying.nothing_to_certify(question, runs):
            raise Refused(f"campaign {name!r} cannot be certified: {reason}")
    api = server_process.stated_server(server, home())
    for question in every if budget or elsewhere else ():
        left_out = question.arms.left_out if question.arms else ()
        for line in (cost(question, runs), *(f"  left out there: {one}" for one in left_out)):
            print(terminal.clean(line), file=sys.stderr, flush=True)
    again = ["nightshift", "certify", name]
    for flag, value in (("--on", ",".join(elsewhere)), ("--runs", runs or ""), ("--budget", budget)):
        again += [flag, str(value)] * bool(value)
    parameters = {"name": name, "on": elsewhere, "runs": runs, "budget": budget}
    return run_and_show(certify_flow, parameters, api, as_json, shlex.join(again))


def _lasting(reference: str) -> str:
    """A bundled environment's name, or an absolute path."""
    return reference if reference in environments.bundled() else str(Path(reference).expanduser().resolve())
