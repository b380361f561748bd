"""The verbs about this machine: up, down, server, doctor, prune, sync."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from flows.cli.options import Json, Server, Settings, Trust, switch

server = App(name="server", help="Set up a Prefect server: automations, blocks, work pools.", group_commands="Commands")


@server.command(name="setup")
def server_setup(*, server: Server = None) -> int:
    """Put automations, block types and the pool `trainers` on a Prefect server; again after an upgrade."""
    from flows.cli.machine import server as commands

    return commands.setup(server)


@server.command(name="pool")
def server_pool(
    name: str,
    *,
    type: Annotated[Literal["process", "docker"], Parameter("--type", help="What a worker of it starts.")] = "process",
    server: Server = None,
) -> int:
    """Make the work pool NAME; a docker pool has the template of prefect-docker."""
    from flows.cli.machine import server as commands

    return commands.pool(name, type, server)


def up() -> int:
    """Start a Prefect server, a worker and the MLflow UI on this machine. They keep running.

    Example: nightshift up
    """
    from flows.cli.machine import up

    return up.up()


def down(*, now: Annotated[bool, switch("--now", "Interrupt campaigns that run on it.")] = False) -> int:
    """Stop what up started. Refused while a campaign runs on it.

    Example: nightshift down
    """
    from flows.cli.machine import up

    return up.down(now)


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

    Example: nightshift doctor --for lunar_lander
    """
    from flows.cli.doctor import report

    if for_ is None:
        from environments.plugins import Refused

        if stated := [flag for flag, given in (("--train", train), ("--set", set_), ("--trust", trust)) if given]:
            raise Refused(f"{stated[0]} is about an environment: name it with --for ENVIRONMENT")
        return report.doctor(json)
    import environments
    from environments.plugins import Refused
    from flows.cli import consent
    from flows.cli.set_option import overrides_only
    from flows.server.server_process import settle_in
    from tasks.system.home import home

    try:
        settle_in(home())
    except (OSError, Refused):  # the report says what is wrong with the home, and nothing can run without one
        return report.doctor(json)
    overrides = overrides_only(set_ or [])
    consent.ask_about(for_, overrides, trust)
    return report.doctor(json, environments.named(for_, overrides), train)


def prune(
    campaign: str | None = None,
    *,
    keep: Annotated[
        Literal["champions", "kept"],
        Parameter("--keep", help="Trials whose files stay: champions only, or all that were kept."),
    ] = "champions",
    dry_run: Annotated[bool, switch("--dry-run", "Only print what would be deleted.")] = False,
    json: Json = False,
) -> int:
    """Delete the large files of trials of CAMPAIGN (default: every campaign that is not running).

    Example: nightshift prune --dry-run
    """
    from flows.cli.machine import prune

    return prune.prune(campaign, keep, dry_run, json)


def sync(campaign: str | None = None, *, json: Json = False) -> int:
    """Send waiting records of CAMPAIGN (default: all) to MLflow.

    Example: nightshift sync
    """
    from flows.cli.machine import sync

    return sync.sync(campaign, json)
