"""The verbs that show campaigns: list, status, watch, logs."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from flows.cli.options import Json, switch


def list_(*, json: Json = False) -> int:
    """List all campaigns, the newest last."""
    from rich.console import Console

    from flows.views import tables, terminal
    from flows.views.status import summary
    from tasks.store.ledger import Ledger, campaigns

    summaries = [summary(Ledger.open(name)) for name in campaigns()]
    if json:
        terminal.print_json(summaries)
    else:
        Console(highlight=False).print(tables.campaigns_table(summaries))
    return 0


def status(
    campaign: str | None = None,
    *,
    last: Annotated[int | None, Parameter("--last", help="Show this many trials, the latest.")] = None,
    json: Json = False,
) -> int:
    """Show CAMPAIGN (default: the newest): its state, its champion against the baseline, its trials."""
    from rich.console import Console

    from flows.cli.running import foreground
    from flows.views import tables, terminal
    from flows.views.status import document
    from tasks.store.ledger import Ledger

    ledger = Ledger.open(campaign or foreground.newest())
    shown = document(ledger)
    if json:
        terminal.print_json(shown)
    else:
        console = Console(highlight=False)
        console.print(tables.campaign_table(shown, console.width, last))
        terminal.outcome(shown, console)
        terminal.what_next(shown, ledger.path, console)
    return 0


def watch(campaign: str | None = None) -> int:
    """Follow a running CAMPAIGN (default: the newest). Ctrl-C leaves it running."""
    from flows.cli.running import foreground

    return foreground.watch(campaign or foreground.newest())


def logs(
    campaign: str,
    trial: int | None = None,
    *,
    attempt: Annotated[
        int | None, Parameter("--attempt", help="Number of the attempt. Default: current.")
    ] = None,
    follow: Annotated[bool, switch(["--follow", "-f"], "Continue as more is printed.")] = False,
) -> int:
    """Print the training and evaluation output of TRIAL (default: the newest) of CAMPAIGN."""
    from flows.cli.running import foreground

    return foreground.print_logs(campaign, trial, follow, attempt)


VERBS = (list_, status, watch, logs)
