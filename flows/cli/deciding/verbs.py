"""The verbs that compare programs and steer a campaign: certify, duel, calibrate, propose, approve, reject."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.options import Comment, Isolation, Json, Seed, Server, Settings, Trust, Unsandboxed, of_certify


def certify(
    campaign: str | None = None,
    *,
    on: Annotated[str | None, of_certify("on")] = None,
    runs: Annotated[int | None, of_certify("runs")] = None,
    budget: Annotated[str, of_certify("budget")] = "",
    trust: Trust = False,
    server: Server = None,
    json: Json = False,
) -> int:
    """Test the champion of CAMPAIGN (default: the newest) against its baseline on fresh runs.

    Example: nightshift certify lunar_lander-1
    """
    from flows.cli.seeing.status import newest
    from flows.server.server_process import settle_in
    from tasks.system.home import home

    settle_in(home())
    from flows.cli.deciding.certify import certify

    return certify(campaign or newest(), on, runs, trust, server, json, budget)


def duel(
    a: str,
    b: str,
    /,
    *,
    on: Annotated[str | None, Parameter("--on", help="The environment. Default: that of the named campaign.")] = None,
    runs: Annotated[
        int | None, Parameter("--runs", help="Fresh runs of each arm. Default: 5, or 2 in a deterministic environment.")
    ] = None,
    set_: Settings = None,
    trust: Trust = False,
    seed: Seed = None,
    isolation: Isolation = "auto",
    allow_unsandboxed: Unsandboxed = False,
    json: Json = False,
) -> int:
    """Compare fresh runs of A and B: baseline, JSON, a .json or .diff file, CAMPAIGN, CAMPAIGN/baseline, CAMPAIGN/7.

    Example: nightshift duel baseline lunar_lander-1
    """
    from flows.cli.deciding import duel

    return duel.duel(a, b, on, runs, set_ or [], trust, seed, isolation, allow_unsandboxed, json)


def calibrate(
    environment: str,
    *,
    runs: Annotated[int | None, Parameter("--runs", help="Runs of the baseline, at least 3. Default: 5.")] = None,
    gain: Annotated[
        float | None, Parameter("--gain", help="Smallest gain worth detecting, in the metric's unit.")
    ] = None,
    fidelity: Annotated[
        float | None,
        Parameter(
            "--fidelity",
            help="Measure instead whether runs of this share of the budget, such as 0.3, rank points of the search "
            "space as whole runs do.",
        ),
    ] = None,
    configs: Annotated[
        int | None, Parameter("--configs", help="Points to measure, those of before included. Default: 20.")
    ] = None,
    set_: Settings = None,
    trust: Trust = False,
    seed: Seed = None,
    isolation: Isolation = "auto",
    json: Json = False,
) -> int:
    """Measure the noise of ENVIRONMENT's baseline on this machine. Later campaigns reuse the runs.

    Example: nightshift calibrate lunar_lander
    """
    from environments.plugins import Refused
    from flows.cli.deciding import calibrate, calibrate_short

    if fidelity is None:
        if configs is not None:
            raise Refused("--configs belongs to --fidelity: say which share of the budget is to be measured")
        return calibrate.calibrate(
            environment, 5 if runs is None else runs, set_ or [], trust, seed, isolation, gain, json
        )
    if runs is not None or gain is not None:
        raise Refused("--runs and --gain belong to a calibration of the noise: leave them out, or --fidelity")
    points = calibrate_short.POINTS if configs is None else configs
    return calibrate_short.calibrate(environment, fidelity, points, set_ or [], trust, seed, isolation, json)


def propose(
    campaign: str,
    *,
    params: Annotated[str, Parameter("--params", help="JSON: values that replace the champion's.")] = "{}",
    diff: Annotated[
        Path | None, Parameter("--diff", help="Unified diff of the editable files, against --base.")
    ] = None,
    base: Annotated[
        int | None, Parameter("--base", help="Trial that the diff applies to. Default: the champion.")
    ] = None,
    rationale: Annotated[str, Parameter("--rationale", help="Reason for the proposal.")] = "",
    json: Json = False,
) -> int:
    """Put a proposal into CAMPAIGN's inbox. It is tried next.

    Example: nightshift propose lunar_lander-1 --params '{"learning_rate": 0.001}'
    """
    from flows.cli.deciding import propose

    return propose.propose(campaign, params, diff, base, rationale, json)


def approve(campaign: str, trial: int | None = None, *, comment: Comment = "", json: Json = False) -> int:
    """Approve a pending TRIAL of CAMPAIGN (default: the only one).

    Example: nightshift approve lunar_lander-1
    """
    from flows.cli.deciding import propose

    return propose.say(campaign, trial, True, comment, json)


def reject(campaign: str, trial: int | None = None, *, comment: Comment = "", json: Json = False) -> int:
    """Reject a pending TRIAL of CAMPAIGN (default: the only one).

    Example: nightshift reject lunar_lander-1 --comment 'too slow'
    """
    from flows.cli.deciding import propose

    return propose.say(campaign, trial, False, comment, json)
