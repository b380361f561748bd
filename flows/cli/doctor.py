"""`nightshift doctor`: whether this machine is ready for campaigns, and what to fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from flows.cli.options import Json, Settings, Trust, switch

if TYPE_CHECKING:
    from flows.cli.doctor_checks import Check

MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "bold red")}


def doctor(
    *,
    for_: Annotated[
        str | None, Parameter("--for", help="Also check whether a campaign of this environment can run here.")
    ] = None,
    train: Annotated[
        bool,
        switch("--train", "With --for: start the judge's model for one token, and train a little. Minutes on GPUs."),
    ] = False,
    set_: Settings = None,
    trust: Trust = False,
    json: Json = False,
) -> int:
    """Check whether this machine is ready, for one environment too. Changes nothing without --train.

    Example: nightshift doctor --for gsm8k
    """
    from environments.plugins import Refused
    from flows.cli.doctor_checks import check_machine
    from flows.views import terminal

    stated = [flag for flag, value in (("--train", train), ("--set", set_), ("--trust", trust)) if value]
    if for_ is None and stated:
        raise Refused(f"{stated[0]} is about an environment: name it with --for ENVIRONMENT")
    checks, about = check_machine(), {}
    if for_ is not None and checks["home"].state != "bad":  # else nothing can run, and the report says why
        import environments
        from flows.cli import consent
        from flows.cli.set_option import overrides_only
        from flows.server.server_process import settle_in
        from tasks.system.home import home

        settle_in(home())  # before Prefect, which the next line imports
        from flows.cli.doctor_for import check_environment

        overrides = overrides_only(set_ or [])
        consent.ask_about(for_, overrides, trust)
        environment = environments.named(for_, overrides)
        checks |= check_environment(environment, home(), train)
        about = {"environment": environment.name}
    bad = sum(check.state == "bad" for check in checks.values())
    if json:
        documents = [check.document(name) for name, check in checks.items()]
        terminal.print_json({"healthy": not bad, **about, "checks": documents})
    else:
        _print_table(checks)
        print(f"{bad} thing{'s' * (bad > 1)} to fix" if bad else "healthy")
    return 1 if bad else 0


def _print_table(checks: Mapping[str, Check]) -> None:
    """One table on a screen; in a file or a pipe a line for each check, which grep finds."""
    from rich.table import Table
    from rich.text import Text

    from flows.views import terminal

    console, width = terminal.console(), max(map(len, checks))
    table = Table.grid(padding=(0, 2))
    for name, check in checks.items():
        mark, style = MARKS[check.state]
        parts = [terminal.clean(check.fact), f"→ {terminal.clean(check.remedy)}" * bool(check.remedy)]
        if terminal.is_screen(console):
            table.add_row(Text(mark, style), name, Text("\n".join(filter(None, parts))))
        else:
            print(f" {mark:<4}  {name:<{width}}  {' '.join(parts)}".rstrip())
    if table.rows:
        console.print(table)
