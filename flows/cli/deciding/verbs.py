"""The verbs that compare programs and steer a campaign: certify, duel, calibrate, propose, approve, reject."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.options import Comment, Isolation, Json, Seed, Server, Settings, Trust, Unsandboxed


def certify(
    campaign: str | None = None,
    *,
    on: Annotated[
        str | None, Parameter("--on", help="Other environments, separated by commas, to test for transfer.")
    ] = None,
    runs: Annotated[int | None, Parameter("--runs", help="Fresh runs of each arm.")] = None,
    trust: Trust = False,
    server: Server = None,
    json: Json = False,
) -> int:
    from flows.cli.seeing.status import newest
    from flows.server.server_process import settle_in
    from tasks.system.home import home

    settle_in(home())
    from flows.cli.deciding.certify import certify

    return certify(campaign or newest(), on, runs, trust, server, json)


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
    from flows.cli.deciding import duel

    return duel.duel(a, b, on, runs, set_ or [], trust, seed, isolation, allow_unsandboxed, json)


def calibrate(
    environment: str,
    *,
    runs: Annotated[int, Parameter("--runs", help="Runs of the baseline, at least 3.")] = 5,
    gain: Annotated[
        float | None, Parameter("--gain", help="Smallest gain worth detecting, in the metric's unit.")
    ] = None,
    set_: Settings = None,
    trust: Trust = False,
    seed: Seed = None,
    isolation: Isolation = "auto",
    json: Json = False,
) -> int:
    from flows.cli.deciding import calibrate

    return calibrate.calibrate(environment, runs, set_ or [], trust, seed, isolation, gain, json)


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
    from flows.cli.deciding import propose

    return propose.propose(campaign, params, diff, base, rationale, json)


def approve(campaign: str, trial: int | None = None, *, comment: Comment = "", json: Json = False) -> int:
    from flows.cli.deciding import propose

    return propose.say(campaign, trial, True, comment, json)


def reject(campaign: str, trial: int | None = None, *, comment: Comment = "", json: Json = False) -> int:
    from flows.cli.deciding import propose

    return propose.say(campaign, trial, False, comment, json)
