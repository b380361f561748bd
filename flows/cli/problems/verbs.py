"""The verbs about environments: env list, new, validate, prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts import App

from flows.cli.options import Json, Settings, Trust

env = App(name="env", group_commands="Commands")


@env.command(name="list")
def env_list(*, json: Json = False) -> int:
    """List the bundled environments."""
    import environments
    from flows.views import terminal
    from tasks.describe import SELF_REPORTED

    bundled = [environments.named(name) for name in environments.bundled()]
    if json:
        terminal.print_json(
            [
                {"name": e.name, "title": e.title, "metric": e.metric, "trainer": e.trainer, "cores": e.cores,
                 "lacks": e.lacks or None}
                for e in bundled
            ]
        )  # fmt: skip
        return 0
    for e in bundled:
        steps = f"{e.budget_steps:,} steps ({SELF_REPORTED}), at most " if e.budget_steps else ""
        cores = f" on {e.cores} cores" if e.cores > 1 else ""
        budget = f"{steps}{e.budget_seconds:g} s per run with {e.trainer}{cores}"
        print(f"{e.name:<16} {e.title}: {e.direction} {e.metric}, {budget}")
        if e.lacks:
            print(f"{'':<16} not ready: {e.lacks}")
    return 0


@env.command(name="new")
def env_new(folder: Path) -> int:
    """Create FOLDER with a small environment that runs, to start your own from."""
    from flows.cli.problems.env_template import write_environment

    print(write_environment(folder))
    return 0


@env.command(name="validate")
def env_validate(environment: str, *, set_: Settings = None, trust: Trust = False, json: Json = False) -> int:
    """Check ENVIRONMENT without training: its file, space, judge, trainer and command lines.

    A Gymnasium environment is made and reset once, outside the sandbox.
    """
    from flows.cli import consent
    from flows.cli.problems.warnings import warnings
    from flows.cli.set_option import overrides_only
    from flows.server.server_process import settle_in
    from flows.views import terminal
    from tasks.system.home import home

    settle_in(home())
    from flows.spec import trust as trusted
    from flows.spec.environment import checked_environment
    from tasks.recipes import output, preparing

    overrides = overrides_only(set_ or [])
    consent.ask_about(environment, overrides, trust)
    checked = checked_environment(environment, overrides)
    place = preparing.place(checked, home())
    made = output.read(place) if place else None
    facts: dict[str, Any] = {
        "environment": checked.name, "folder": str(checked.folder),
        "metric": checked.metric, "direction": checked.direction,
        "trainer": checked.trainer, "budget_seconds": checked.budget_seconds, "budget_steps": checked.budget_steps,
        "cores": checked.cores,
        "baseline": checked.defaults, "varies": list(checked.space),
        "prepared": place and {"folder": str(place), "content": made.content if made else None},
        "asks_for": list(trusted.asked_by(checked)), "warnings": warnings(checked),
    }  # fmt: skip
    if json:
        terminal.print_json(facts)
        return 0
    if not place:
        facts["prepared"] = "needs nothing"
    else:
        missing = f"not yet: nightshift env prepare {environment}"
        facts["prepared"] = f"{place}, content {made.content}" if made else missing
    doubts = facts.pop("warnings")
    facts["asks_for"] = "; ".join(facts["asks_for"]) or "nothing beyond its folder"
    for key, value in facts.items():
        print(f"{key:<16} {value}")
    for doubt in doubts:
        print(f"warning: {doubt}")
    print(f"valid{', with warnings' if doubts else ''}; next: nightshift try {environment}")
    return 0


@env.command(name="prepare")
def env_prepare(environment: str, *, set_: Settings = None, trust: Trust = False, json: Json = False) -> int:
    """Make what ENVIRONMENT needs once, such as questions and a base model. Campaigns do this themselves."""
    from flows.cli import consent
    from flows.cli.set_option import overrides_only
    from flows.server.server_process import settle_in
    from tasks.system.home import home

    settle_in(home())
    from flows.engine import preparation

    overrides = overrides_only(set_ or [])
    consent.ask_about(environment, overrides, trust)
    return preparation.prepare(environment, overrides, json)
