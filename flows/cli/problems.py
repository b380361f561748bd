"""The verbs about environments: env list, new, import, validate, prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import environments
from environments.plugins import Refused
from flows.cli import consent, validation
from flows.cli.arguments import writing
from flows.cli.env_import import import_environment, shown
from flows.cli.env_template import write_environment
from flows.cli.options import Json, Settings, Trust
from flows.cli.set_option import overrides_only
from flows.server import server_process
from flows.views import terminal
from tasks.system.home import home

env = App(name="env", help="List, create, import, check and prepare environments.", group_commands="Commands")


@env.command(name="list")
def env_list(*, json: Json = False) -> int:
    """List the bundled environments.

    Example: nightshift env list
    """
    bundled = [environments.named(name) for name in environments.bundled()]
    if json:
        keys = ("name", "title", "metric", "trainer", "cores")
        terminal.print_json([{key: getattr(e, key) for key in keys} | {"lacks": e.lacks or None} for e in bundled])
        return 0
    width = max(len(e.name) for e in bundled)
    for e in bundled:
        steps = f"{e.budget_steps:,} steps, at most " if e.budget_steps else ""
        cores = f" on {e.cores} cores" if e.cores > 1 else ""
        budget = f"{steps}{e.budget_seconds:g} s per run with {e.trainer}{cores}"
        print(f"{e.name:<{width}}  {e.title}: {e.direction} {e.metric}, {budget}")
        if e.lacks:
            print(f"{'':<{width}}  not ready: {e.lacks}")
    return 0


@env.command(name="new")
def env_new(
    folder: Path,
    /,
    *,
    from_: Annotated[str, Parameter("--from", help="What it trains with: command, sb3, rl-zoo or grpo.")] = "command",
) -> int:
    """Create FOLDER with a small environment that runs, to start your own from.

    Example: nightshift env new ./my-problem --from sb3
    """
    with writing(folder, "FOLDER"):
        print(write_environment(folder, from_))
    return 0


@env.command(name="import")
def env_import(
    place: str,
    /,
    *,
    to: Annotated[Path | None, Parameter("--to", help="The new folder. Default: here, by the original's name.")] = None,
    source: Annotated[str, Parameter("--source", help="What PLACE is, where several are recognised.")] = "",
    trust: Trust = False,
    json: Json = False,
) -> int:
    """Make an environment of PLACE, a problem of another tool: a folder, a file or a storage URL.

    The original is read and stays as it is; nothing of it runs. The new folder is then checked as by env validate.

    Example: nightshift env import cleanrl/ppo.py --to ./ppo
    """
    account = import_environment(place, to, source)
    folder = account["folder"]
    if not json:
        print(f"{shown(account)}\n", flush=True)
    try:
        facts = validation.validate(folder, {}, trust)
    except Refused as lacking:
        if json:
            terminal.print_json({**account, "validated": None, "refused": str(lacking)})
        again = f"{folder} is written; when that is settled: {validation.command(folder)}"
        raise Refused(f"{lacking}\n{again}") from lacking
    if json:
        terminal.print_json({**account, "validated": facts, "refused": None})
    else:
        print(f"{validation.shown(facts, folder)}\nthen: {account['next']}")
    return 0


@env.command(name="validate")
def env_validate(environment: str, /, *, set_: Settings = None, trust: Trust = False, json: Json = False) -> int:
    """Check ENVIRONMENT without training: its file, space, judge, trainer and command lines.

    A Gymnasium environment is made and reset once, outside the sandbox.

    Example: nightshift env validate ./my-problem
    """
    facts = validation.validate(environment, overrides_only(set_ or []), trust)
    if json:
        terminal.print_json(facts)
    else:
        print(validation.shown(facts, environment))
    return 0


@env.command(name="prepare")
def env_prepare(environment: str, /, *, set_: Settings = None, trust: Trust = False, json: Json = False) -> int:
    """Make what ENVIRONMENT needs once, such as questions and a base model. Campaigns do this themselves.

    Example: nightshift env prepare arithmetic
    """
    server_process.settle_in(home())  # before Prefect, which the next line imports
    from flows.engine import preparation

    overrides = overrides_only(set_ or [])
    consent.ask_about(environment, overrides, trust)
    return preparation.prepare(environment, overrides, json)
