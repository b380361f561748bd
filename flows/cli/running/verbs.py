"""The verbs that run trials: run, resume, stop, rerun, try."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from flows.cli.options import (
    Detach,
    Isolation,
    Json,
    Seed,
    Server,
    Settings,
    Trust,
    Unsandboxed,
    campaign_options,
    switch,
)


@campaign_options(resuming=False)
def run(
    environment: str,
    *,
    set_: Settings = None,
    trust: Trust = False,
    server: Server = None,
    detach: Detach = False,
    json: Json = False,
    **options: Any,
) -> int:
    """Run a campaign in ENVIRONMENT (a name, a folder or a spec.toml), or resume the one of that --name.

    Example: nightshift run lunar_lander --trials 100 --until 07:30
    """
    from flows.cli.running import foreground
    from flows.cli.stated import stated

    return foreground.run(stated(environment, settings=set_ or [], trust=trust, **options), server, json, detach, trust)


@campaign_options(resuming=True)
def resume(
    campaign: str | None = None,
    *,
    set_: Settings = None,
    server: Server = None,
    detach: Detach = False,
    json: Json = False,
    **options: Any,
) -> int:
    """Resume CAMPAIGN (default: the newest unfinished one). Options that change a score are fixed.

    Example: nightshift resume
    """
    from flows.cli.running import foreground
    from flows.cli.stated import stated

    name = campaign or foreground.newest_unfinished()
    return foreground.run(stated(None, settings=set_ or [], name=name, **options), server, json, detach)


def stop(campaign: str, *, now: Annotated[bool, switch("--now", "Interrupt the current trial.")] = False) -> int:
    """Stop CAMPAIGN after the current trial. It can be resumed.

    Example: nightshift stop lunar_lander-1
    """
    from flows.cli.running.stop import stop

    return stop(campaign, now)


def rerun(campaign: str, trial: int, *, server: Server = None, json: Json = False) -> int:
    """Run TRIAL of CAMPAIGN again, and decide it as the newest; the first attempt is kept.

    Example: nightshift rerun lunar_lander-1 7
    """
    from flows.server.server_process import settle_in
    from tasks.system.home import home

    settle_in(home())
    from flows.cli.running.rerun import rerun

    return rerun(campaign, trial, server, json)


def try_(
    environment: str | None = None,
    *,
    params: Annotated[str, Parameter("--params", help="JSON: values that replace the baseline's.")] = "{}",
    diff: Annotated[Path | None, Parameter("--diff", help="Unified diff of the baseline's editable files.")] = None,
    in_: Annotated[str | None, Parameter("--in", help="Use this campaign's frozen environment.")] = None,
    set_: Settings = None,
    trust: Trust = False,
    seed: Seed = None,
    isolation: Isolation = "auto",
    allow_unsandboxed: Unsandboxed = False,
    json: Json = False,
) -> int:
    """Train and evaluate once, outside of any campaign.

    Example: nightshift try lunar_lander --params '{"learning_rate": 0.001}'
    """
    from flows.cli.running import try_once

    return try_once.attempt(environment, in_, params, diff, set_ or [], trust, seed, isolation, allow_unsandboxed, json)
