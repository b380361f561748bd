"""The `nightshift` command. Thin: every verb reads a ledger, or calls a flow or a task.

Prefect, MLflow and everything else that is slow to load is imported by the verb that needs it.
Exit codes: 0 finished; 1 the campaign (or the one trial) failed; 2 refused before anything ran; 130 interrupted.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from environments.plugins import Refused
from flows.cli.options import (
    Asked,
    Comment,
    Detach,
    Gain,
    Json,
    Name,
    On,
    Runs,
    Seed,
    Server,
    Settings,
    Unsandboxed,
    Walls,
)
from flows.cli.problems.env import environments_app

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130


def _version() -> str:
    return importlib.metadata.version("nightshift-rl")


app = App(
    name="nightshift", help="RL research while you sleep.", version_flags=["--version"], version=_version
)
app.command(environments_app)


@app.command
def run(
    environment: str,
    *,
    name: Name = None,
    asked: Asked = Asked(),  # noqa: B008 (frozen)
    server: Server = None,
    detach: Detach = False,
    json: Json = False,
) -> int:
    """Run a campaign in ENVIRONMENT (a name, a folder or a spec.toml), or go on with one that is unfinished."""
    from flows.cli.running import foreground

    stated = foreground.stated(environment, name=name, settings=asked.set_ or [], **asked.parameters)
    return foreground.run(stated, server, json, detach)


@app.command
def resume(
    campaign: str | None = None,
    *,
    asked: Asked = Asked(),  # noqa: B008 (frozen)
    server: Server = None,
    detach: Detach = False,
    json: Json = False,
) -> int:
    """Go on with CAMPAIGN (the newest unfinished one) where it was cut off. What changes a score cannot be changed."""
    from flows.cli.running import foreground

    name = campaign or foreground.newest_unfinished()
    return foreground.run(
        foreground.stated(None, name=name, settings=asked.set_ or [], **asked.parameters),
        server,
        json,
        detach,
    )


@app.command
def watch(campaign: str | None = None) -> int:
    """Show CAMPAIGN (the newest) while it runs, wherever it was started. Ctrl-C ends the watching, not the campaign."""
    from flows.cli.seeing.status import newest
    from flows.cli.seeing.watch import watch

    return watch(campaign or newest())


@app.command
def stop(campaign: str, *, now: Annotated[bool, Parameter("--now", negative="")] = False) -> int:
    """Have CAMPAIGN end after the trial under way, or at once with --now. It can be resumed."""
    from flows.cli.running.stop import stop

    return stop(campaign, now)


@app.command(name="try")
def try_(
    environment: str | None = None,
    *,
    params: Annotated[str, Parameter("--params", help="JSON: values over the baseline's.")] = "{}",
    diff: Annotated[Path | None, Parameter("--diff", help="A unified diff of the editable files.")] = None,
    in_: Annotated[
        str | None, Parameter("--in", help="Try it in this campaign's frozen environment.")
    ] = None,
    set_: Settings = None,
    seed: Seed = None,
    isolation: Walls = None,
    allow_unsandboxed: Unsandboxed = None,
    json: Json = False,
) -> int:
    """Train and judge once, outside of any campaign, and say what came of it."""
    from flows.cli.running import trying

    return trying.attempt(
        environment, in_, params, diff, set_ or [], seed, isolation or "auto", bool(allow_unsandboxed), json
    )


@app.command
def rerun(campaign: str, trial: int, *, server: Server = None, json: Json = False) -> int:
    """Run TRIAL of CAMPAIGN once more, in its place, and give every later verdict anew. Its first attempt is kept."""
    from flows.server.connect import settle_in
    from tasks.system.home import home

    settle_in(home())
    from flows.cli.running.rerun import rerun

    return rerun(campaign, trial, server, json)


@app.command
def certify(
    campaign: str | None = None,
    *,
    on: Annotated[
        str | None, Parameter("--on", help="Other environments, by commas, to see whether it carries over.")
    ] = None,
    runs: Annotated[int | None, Parameter("--runs", help="Fresh runs of each arm.")] = None,
    server: Server = None,
    json: Json = False,
) -> int:
    """Train CAMPAIGN's champion (the newest's) and its baseline afresh, and say what that proves."""
    from flows.cli.seeing.status import newest
    from flows.server.connect import settle_in
    from tasks.system.home import home

    settle_in(home())
    from flows.cli.deciding.certify import certify

    return certify(campaign or newest(), on, runs, server, json)


@app.command
def duel(
    a: str,
    b: str,
    /,
    *,
    on: On = None,
    runs: Runs = None,
    set_: Settings = None,
    seed: Seed = None,
    isolation: Walls = None,
    allow_unsandboxed: Unsandboxed = None,
    json: Json = False,
) -> int:
    """Compare fresh runs of A and B: baseline, JSON, a .json or .diff file, CAMPAIGN, CAMPAIGN/baseline, CAMPAIGN/7."""
    from flows.cli.deciding import duel

    return duel.duel(a, b, on, runs, set_ or [], seed, isolation or "auto", bool(allow_unsandboxed), json)


@app.command
def calibrate(
    environment: str,
    *,
    runs: Annotated[int, Parameter("--runs", help="Runs of the baseline, 3 or more.")] = 5,
    gain: Gain = None,
    set_: Settings = None,
    seed: Seed = None,
    isolation: Walls = None,
    json: Json = False,
) -> int:
    """Measure how noisy runs of ENVIRONMENT's baseline are here; later campaigns take these runs over."""
    from flows.cli.deciding import calibrate

    return calibrate.calibrate(environment, runs, set_ or [], seed, isolation or "auto", gain, json)


@app.command
def propose(
    campaign: str,
    *,
    params: Annotated[str, Parameter("--params", help="JSON: values over the champion's.")] = "{}",
    diff: Annotated[
        Path | None, Parameter("--diff", help="A unified diff of the editable files, as --base has them.")
    ] = None,
    base: Annotated[
        int | None,
        Parameter("--base", help="The trial whose program the diff is of; without it the champion."),
    ] = None,
    rationale: Annotated[str, Parameter("--rationale", help="Why.")] = "",
    json: Json = False,
) -> int:
    """Leave an idea in CAMPAIGN's inbox: it is tried next, before anything that the proposer thinks of."""
    from flows.cli.deciding import propose

    return propose.propose(campaign, params, diff, base, rationale, json)


@app.command
def approve(campaign: str, trial: int | None = None, *, comment: Comment = "", json: Json = False) -> int:
    """Let TRIAL of CAMPAIGN run, which waits for a person's word (the only one that waits, if it is not named)."""
    from flows.cli.deciding import propose

    return propose.say(campaign, trial, True, comment, json)


@app.command
def reject(campaign: str, trial: int | None = None, *, comment: Comment = "", json: Json = False) -> int:
    """Keep TRIAL of CAMPAIGN, which waits for a person's word, from running; the proposer reads the comment."""
    from flows.cli.deciding import propose

    return propose.say(campaign, trial, False, comment, json)


@app.command(name="list")
def list_(*, json: Json = False) -> int:
    """Every campaign, the newest last."""
    from flows.views import tables, terminal
    from flows.views.status import summary
    from tasks.store.ledger import Ledger, campaigns

    summaries = [summary(Ledger.open(name)) for name in campaigns()]
    if json:
        terminal.print_json(summaries)
    else:
        console = terminal.console()
        terminal.put(console, tables.campaigns_table(summaries, console))
    return FINISHED


@app.command
def status(campaign: str | None = None, *, last: int | None = None, json: Json = False) -> int:
    """How CAMPAIGN (the newest) stands: state, champion against baseline, its trials."""
    from flows.cli.seeing.status import newest, print_status
    from tasks.store.ledger import Ledger

    print_status(Ledger.open(campaign or newest()), json, last)
    return FINISHED


@app.command
def logs(
    campaign: str,
    trial: int | None = None,
    *,
    attempt: Annotated[
        int | None, Parameter("--attempt", help="Which attempt at it; without it the current one.")
    ] = None,
    follow: Annotated[
        bool, Parameter(["--follow", "-f"], negative="", help="Go on as more is printed.")
    ] = False,
) -> int:
    """What TRIAL (the newest) of CAMPAIGN printed, in training and under judgement."""
    from flows.cli.seeing.logs import print_logs

    return print_logs(campaign, trial, follow, attempt)


@app.command
def sync(campaign: str | None = None, *, json: Json = False) -> int:
    """Send MLflow what waits of CAMPAIGN, or of every campaign, because it was away."""
    from flows.cli.machine import sync

    return sync.sync(campaign, json)


@app.command
def prune(
    campaign: str | None = None,
    *,
    keep: Annotated[
        Literal["champions", "kept"],
        Parameter("--keep", help="What stays whole: the champions alone, or all that was kept."),
    ] = "champions",
    dry_run: Annotated[
        bool, Parameter("--dry-run", negative="", help="Only say what it would free.")
    ] = False,
    json: Json = False,
) -> int:
    """Free the disk of CAMPAIGN (of every one that is not running): what its trials left, but for the champions."""
    from flows.cli.machine import prune

    return prune.prune(campaign, keep, dry_run, json)


@app.command
def up(
    *,
    auth: Annotated[
        bool, Parameter("--auth", negative="--no-auth", help="Have the Prefect server ask for a password.")
    ] = True,
    database: Annotated[
        str | None,
        Parameter("--database", help="Keep the server's data in PostgreSQL, at postgresql+asyncpg://..."),
    ] = None,
) -> int:
    """Start the Prefect server, a worker and the MLflow UI on this machine. They stay until `nightshift down`."""
    from flows.cli.machine import up

    return up.up(auth, database)


@app.command
def down(
    *, now: Annotated[bool, Parameter("--now", negative="", help="Interrupt what runs on it.")] = False
) -> int:
    """End what `up` started. Refused while a campaign runs on it, unless --now."""
    from flows.cli.machine import up

    return up.down(now)


@app.command
def doctor(*, json: Json = False) -> int:
    """Say whether this machine is fit for a night, and what there is to mend. Changes nothing."""
    from flows.cli.doctor import report

    return report.doctor(json)


def _interrupt(number: int, _: object) -> None:
    """SIGTERM and SIGHUP do what Ctrl-C does; a second one while that is under way is ignored."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """The console script."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        code = app(exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()  # here, where a reader that has gone away is expected
    except Refused as refused:
        print(f"nightshift: {refused}", file=sys.stderr)
        code = REFUSED
    except CycloptsError as wrong:
        print(f"nightshift: {wrong}", file=sys.stderr)
        code = REFUSED
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FINISHED
    except OSError as fault:  # the machine: no space, no permission, a server that went away
        print(f"nightshift: {fault}", file=sys.stderr)
        code = FAILED
    except KeyboardInterrupt:
        print("nightshift: interrupted", file=sys.stderr)
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else FINISHED)
