"""The verbs that run trials: run, resume, stop, rerun, try."""

from __future__ import annotations

import os
import platform
import signal
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from environments.plugins import Refused
from flows.cli import foreground
from flows.cli.arguments import overrides_only, parse_params, read_diff, stated
from flows.cli.options import Isolation, Json, Seed, Server, Settings, Trust, Unsandboxed, campaign_options
from flows.status import state
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system import orphans

OfRun, OfResume = campaign_options(resuming=False), campaign_options(resuming=True)
END_SECONDS = 60.0
"""How long `stop --now` waits for the campaign's process to end."""


def run(
    environment: str,
    /,
    *,
    set_: Settings = None,
    trust: Trust = False,
    server: Server = None,
    detach: bool = False,
    json: Json = False,
    options: OfRun = OfRun(),  # type: ignore[valid-type]  # noqa: B008 (nobody changes it)
) -> int:
    """Run a campaign in ENVIRONMENT (a name, a folder or a spec.toml), or resume the one of that --name.

    Options are also keys of a spec.toml and fields of Prefect's form. Fixed ones stay when a campaign is resumed.

    Example: nightshift run cartpole --trials 20 --hours 8

    Args:
        detach: Return once the campaign has started; it continues in the background.
    """
    given = stated(environment, settings=set_ or [], trust=trust, **vars(options))
    return foreground.run(given, server, json, detach, trust)


def resume(
    campaign: str | None = None,
    /,
    *,
    set_: Settings = None,
    server: Server = None,
    detach: bool = False,
    json: Json = False,
    options: OfResume = OfResume(),  # type: ignore[valid-type]  # noqa: B008
) -> int:
    """Resume CAMPAIGN (default: the newest unfinished one). Options that change a score are fixed.

    Example: nightshift resume night --trials 40

    Args:
        detach: Return once the campaign has started; it continues in the background.
    """
    name = campaign or foreground.newest_unfinished()
    return foreground.run(stated(None, settings=set_ or [], name=name, **vars(options)), server, json, detach)


def stop(campaign: str, /, *, now: bool = False) -> int:
    """Stop CAMPAIGN after the current trial. It can be resumed.

    Example: nightshift stop night --now

    Args:
        now: Interrupt the current trial.
    """
    ledger = Ledger.open(campaign)
    if not campaign_lock.is_running(ledger):
        raise Refused(f"campaign {campaign!r} is not running (it is {state(ledger)})")
    holder = campaign_lock.holder(ledger)
    if now and holder and holder["host"] != platform.node():
        raise Refused(f"campaign {campaign!r} runs on {holder['host']}: stop it there, or leave out --now")
    if not holder or (now and not orphans.is_alive(f"{holder['pid']} {holder['identity']}")):
        raise Refused(f"campaign {campaign!r} is about to begin, or is looked at, as by prune: try again in a moment")
    (ledger.path / "stop").touch()
    if not now:
        print(f"{campaign} stops after the current trial")
        return 0
    os.kill(holder["pid"], signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    while campaign_lock.is_running(ledger):
        if time.monotonic() > deadline:
            raise Refused(f"process {holder['pid']} still runs {campaign!r} {END_SECONDS:.0f} s after SIGTERM")
        time.sleep(0.1)
    print(f"{campaign} is stopped; nightshift resume {campaign}")
    return 0


def rerun(campaign: str, trial: int, /, *, server: Server = None, json: Json = False) -> int:
    """Run TRIAL of CAMPAIGN again, and decide it as the newest; the first attempt is kept.

    Example: nightshift rerun night 7
    """
    from flows.rerun import check  # imports Prefect
    from flows.rerun import rerun as flow

    ledger = Ledger.open(campaign)
    campaign_lock.check_idle(ledger)
    check(ledger, trial)
    ledger.verify()
    return foreground.run_and_show(flow, {"name": campaign, "trial": trial}, server, json)


def try_(
    environment: str | None = None,
    /,
    *,
    params: str = "{}",
    diff: Path | None = None,
    in_: str | None = None,
    runs: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    set_: Settings = None,
    trust: Trust = False,
    seed: Seed = None,
    isolation: Isolation = "auto",
    allow_unsandboxed: Unsandboxed = False,
    json: Json = False,
) -> int:
    """Train and evaluate outside of any campaign: once, or --runs times.

    Example: nightshift try cartpole --params '{"learning_rate": 0.001}' --runs 5

    Args:
        params: JSON: values that replace the baseline's.
        diff: Unified diff of the baseline's editable files.
        in_: Use this campaign's frozen environment.
        runs: Runs, each under a seed of its own. Several tell the spread between them.
    """
    from flows.cli import single_runs  # imports Prefect
    from flows.spec.environment import checked_environment

    edit, overrides = read_diff(diff, "--diff") if diff else None, overrides_only(set_ or [])
    side = {"run": single_runs.Side(f"--diff {diff}", parse_params(params, "--params"), edit)}
    if environment and not in_:
        question = single_runs.Question(side, checked_environment(environment, overrides, trust), overrides)
    elif in_ and not (environment or overrides):
        question = single_runs.in_campaign(side, Ledger.open(in_))
    else:
        raise Refused("name one of the two: an environment (with --set), or --in CAMPAIGN")
    return single_runs.attempt(question, runs, seed, single_runs.isolated(isolation, allow_unsandboxed), json)
