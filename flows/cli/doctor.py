"""`nightshift doctor`: whether this machine is ready for campaigns, and what to fix."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

import environments
from environments.plugins import Refused
from flows.cli import consent
from flows.cli.doctor_checks import check_machine
from flows.cli.options import Json, Settings, Trust
from flows.cli.set_option import overrides_only
from flows.server import server_process
from flows.views import terminal
from tasks.system.home import home

MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "bold red")}


def doctor(
    *,
    for_: Annotated[
        str | None, Parameter("--for", help="Also check whether a campaign of this environment can run here.")
    ] = None,
    set_: Settings = None,
    trust: Trust = False,
    json: Json = False,
) -> int:
    """Check whether this machine is ready, for one environment too. Changes nothing.

    Example: nightshift doctor --for gsm8k
    """
    if for_ is None and (set_ or trust):
        raise Refused("--set and --trust are about an environment: name it with --for ENVIRONMENT")
    checks, about = check_machine(), {}
    if for_ is not None and checks["home"].state != "bad":  # else nothing can run, and the report says why
        server_process.settle_in(home())  # before Prefect, which the next line imports
        from flows.cli.doctor_for import check_environment

        overrides = overrides_only(set_ or [])
        consent.ask_about(for_, overrides, trust)
        environment = environments.named(for_, overrides)
        checks |= check_environment(environment, home())
        about = {"environment": environment.name}
    bad = sum(check.state == "bad" for check in checks.values())
    if json:
        documents = [{"name": name, **check._asdict()} for name, check in checks.items()]
        terminal.print_json({"healthy": not bad, **about, "checks": documents})
        return 1 if bad else 0
    table = Table.grid(padding=(0, 2))
    for name, check in checks.items():
        mark, style = MARKS[check.state]
        fact = f"{terminal.clean(check.fact)} {f'→ {terminal.clean(check.remedy)}' * bool(check.remedy)}".rstrip()
        table.add_row(Text(mark, style), name, Text(fact))
    terminal.put(terminal.console(), table)
    print(f"{bad} thing{'s' * (bad > 1)} to fix" if bad else "healthy")
    return 1 if bad else 0
