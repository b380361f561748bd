"""The verbs that show campaigns: list, status, watch, report, logs."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from flows.cli.options import Json, switch

BRIEFLY = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""Variables of a process that looks once: NumPy starts no threads, and Pydantic looks for no plug-ins."""


@contextmanager
def _briefly() -> Iterator[None]:
    """Leave out what pays in long processes only: together a third of the time to read a thousand trials.

    Looking for garbage is one such thing, at the end too, since all that is read is kept until then.
    """
    new = {name: value for name, value in BRIEFLY.items() if name not in os.environ}
    os.environ.update(new)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # or the process ends with a search of everything
        gc.enable()
        for name in new:
            del os.environ[name]


@_briefly()
def list_(*, json: Json = False) -> int:
    """List all campaigns, the newest last.

    Example: nightshift list
    """
    from environments.plugins import Refused
    from flows.status import summary
    from flows.views import tables, terminal
    from tasks.store.ledger import Ledger, campaigns
    from tasks.system.home import home

    summaries, damaged = [], False
    for name in campaigns():
        try:
            summaries.append(summary(Ledger.open(name)))
        except Refused as fault:  # of one, which must not hide the others
            damaged = True
            remedy = f"restore it, or move {home() / name} out of the home"
            print(f"nightshift: campaign {name!r} is left out: {fault}: {remedy}", file=sys.stderr)
    if json:
        terminal.print_json(summaries)
    else:
        console = terminal.console()
        terminal.put(console, tables.campaigns_table(summaries, console))
    return int(damaged)


@_briefly()
def status(
    campaign: str | None = None,
    *,
    last: Annotated[
        int | None, Parameter("--last", help="Show this many trials, the latest.", validator=Number(gte=1))
    ] = None,
    json: Json = False,
    csv: Annotated[bool, switch("--csv", "Print the trials as CSV.")] = False,
) -> int:
    """Show CAMPAIGN (default: the newest): its state, its champion against the baseline, its trials.

    Example: nightshift status lunar_lander-1
    """
    from flows.cli.seeing.status import newest, print_csv, print_status
    from tasks.store.ledger import Ledger

    if csv and json:
        from environments.plugins import Refused

        raise Refused("--csv and --json exclude each other: leave one out")
    ledger = Ledger.open(campaign or newest())
    if csv:
        print_csv(ledger, last)
    else:
        print_status(ledger, json, last)
    return 0


def watch(campaign: str | None = None) -> int:
    """Follow a running CAMPAIGN (default: the newest). Ctrl-C leaves it running.

    Example: nightshift watch
    """
    from flows.cli.seeing.status import newest
    from flows.cli.seeing.watch import watch

    return watch(campaign or newest())


def report(
    *campaigns: str,
    all: Annotated[bool, switch("--all", "Write index.html, the page of all campaigns, instead.")] = False,
    serve: Annotated[bool, switch("--serve", "Then serve all reports on this machine, behind a login.")] = False,
) -> int:
    """Write report.html of CAMPAIGN (default: the newest); of several, a page that compares them too.

    Example: nightshift report lunar_lander-1
    """
    from flows.cli.seeing.report import write_reports

    return write_reports(campaigns, every=all, serving=serve)


def logs(
    campaign: str,
    trial: int | None = None,
    *,
    attempt: Annotated[int | None, Parameter("--attempt", help="Number of the attempt. Default: current.")] = None,
    follow: Annotated[bool, switch(["--follow", "-f"], "Continue as more is printed.")] = False,
) -> int:
    """Print the training and evaluation output of TRIAL (default: the newest) of CAMPAIGN.

    Example: nightshift logs lunar_lander-1 7 --follow
    """
    from flows.cli.seeing.logs import print_logs

    return print_logs(campaign, trial, follow, attempt)
