"""`nightshift env`: the verbs about problems. Thin, as flows/cli.py is."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from flows.cli.options import Json, Settings

environments_app = App(name="env", help="Problems: list, make and check environments.")


@environments_app.command(name="list")
def environments_list(*, json: Json = False) -> int:
    """The environments that come with Nightshift."""
    import environments
    from flows.views import terminal

    found = [environments.named(name) for name in environments.bundled()]
    if json:
        terminal.print_json(
            [{"name": e.name, "title": e.title, "metric": e.metric, "trainer": e.trainer} for e in found]
        )
    else:
        for e in found:
            steps = f"{e.budget_steps:,} steps, at most " if e.budget_steps else ""
            budget = f"{steps}{e.budget_seconds:g} s a run with {e.trainer}"
            print(f"{e.name:<16} {e.title}: {e.direction} {e.metric}, {budget}")
    return 0


@environments_app.command(name="new")
def environments_new(folder: Path) -> int:
    """Write FOLDER with a small environment that runs as it is, to be made yours."""
    from flows.cli.problems.env_template import write_environment

    print(write_environment(folder))
    return 0


@environments_app.command(name="validate")
def environments_validate(environment: str, *, set_: Settings = None, json: Json = False) -> int:
    """Check ENVIRONMENT without running it: its file, space, judge, trainer and command lines."""
    from flows.cli.set_option import overrides_only
    from flows.server.connect import settle_in
    from flows.views import terminal
    from tasks.system.home import home

    settle_in(home())
    from flows.spec.campaign_spec import checked_environment
    from tasks.recipes import output, preparing

    overrides = overrides_only(set_ or [])
    found = checked_environment(environment, overrides)
    place = preparing.place(found, home())
    made = output.read(place) if place else None
    facts = {
        "environment": found.name, "folder": str(found.folder), "metric": found.metric, "direction": found.direction,
        "trainer": found.trainer, "budget_seconds": found.budget_seconds, "budget_steps": found.budget_steps,
        "baseline": found.defaults, "varies": list(found.space),
        "prepared": place and {"folder": str(place), "content": made.content if made else None},
    }  # fmt: skip
    if json:
        terminal.print_json(facts)
    else:
        there = (
            f"{place}, content {made.content}" if made else f"not yet: nightshift env prepare {environment}"
        )
        for key, value in (facts | {"prepared": there if place else "needs nothing"}).items():
            print(f"{key:<16} {value}")
        print(f"valid; next: nightshift try {environment}")
    return 0


@environments_app.command(name="prepare")
def environments_prepare(environment: str, *, set_: Settings = None, json: Json = False) -> int:
    """Make what ENVIRONMENT needs once, such as questions and a base model, unless it is there; campaigns do so too."""
    from flows.cli.set_option import overrides_only
    from flows.server.connect import settle_in
    from tasks.system.home import home

    settle_in(home())
    from flows.engine import preparation

    return preparation.prepare(environment, overrides_only(set_ or []), json)
