"""The verbs that run trials: run, resume, stop, rerun, try."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import httpx
from cyclopts import Parameter
from cyclopts.validators import Number

from environments.plugins import Refused
from flows.cli import validation
from flows.cli.arguments import overrides_only, parse_params, read_diff, stated
from flows.cli.options import Isolation, Json, Seed, Server, Settings, Trust, Unsandboxed, campaign_options
from flows.cli.seeing import print_status
from flows.server import server_process
from flows.spec import permissions
from flows.spec.spec import end_of, laid_over
from flows.status import document, state
from flows.views import terminal
from flows.watch import CampaignWatch
from tasks.sandbox.program import CannotStart
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger, ended, free_name, readable
from tasks.system import orphans
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.system.redact import without_passwords
from tasks.tracking.connection import locate

if TYPE_CHECKING:
    from flows.spec.campaign_spec import CampaignSpec

OfRun, OfResume = campaign_options(resuming=False), campaign_options(resuming=True)
END_SECONDS = 60.0
"""How long `stop --now` waits for the campaign's process to end."""
UNREACHED = "Failed to reach API"
"""Prefect's message for a server that died before it was told of a run."""


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
    return run_campaign(given, server, json, detach, trust)


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
    name = campaign or newest_unfinished()
    return run_campaign(stated(None, settings=set_ or [], name=name, **vars(options)), server, json, detach)


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
    print(f"{campaign} is stopped; nightshift {'certify' if 'certify' in holder else 'resume'} {campaign}")
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
    return run_and_show(flow, {"name": campaign, "trial": trial}, server, json)


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
    from flows.spec.campaign_spec import checked_environment

    edit, overrides = read_diff(diff, "--diff") if diff else None, overrides_only(set_ or [])
    side = {"run": single_runs.Side(f"--diff {diff}", parse_params(params, "--params"), edit)}
    if environment and not in_:
        question = single_runs.Question(side, checked_environment(environment, overrides, trust), overrides)
    elif in_ and not (environment or overrides):
        question = single_runs.in_campaign(side, Ledger.open(in_))
    else:
        raise Refused("name one of the two: an environment (with --set), or --in CAMPAIGN")
    return single_runs.attempt(question, runs, seed, single_runs.isolated(isolation, allow_unsandboxed), json)


def run_campaign(
    asked: dict[str, Any], server: str | None, as_json: bool, detach: bool = False, trust: bool = False
) -> int:
    """Start or resume a campaign and run it until it ends; the command's exit code.

    Args:
        asked: Parameters of the flow, over those that the campaign was started with.
        detach: Leave it to a process of its own, and return once that has begun.
        trust: Agree to what the environment asks for. That of an existing campaign was asked about at its start.
    """
    name = asked.get("name")
    ledger = Ledger.open(name) if name and ("environment" not in asked or Ledger.exists(name)) else None
    name = name or free_name(Path(asked["environment"]).name)
    try:
        spec = _checked({**asked, "name": name}, ledger, trust)
        if ledger:
            status = document(ledger)
            asks_more = asked["advanced"] or asked.keys() - {"name", "environment", "advanced"}
            if status["state"] == "finished" and not (status["waiting_to_record"] or asks_more):
                return print_status(ledger, as_json)
            campaign_lock.check_idle(ledger)
            if time.time() > end_of(vars(spec)) and (status["state"] != "finished" or asks_more):
                raise Refused(f"until = {spec.until} has passed: give --until another time")
        api = server_process.stated_server(server, home())
        locate(spec.tracking, home())  # refuses where nothing can be recorded
        if detach:
            return start_detached(spec, api, as_json)
        from flows.campaign import campaign

        console = terminal.console(as_json)
        limits = f"{spec.trials} trial{'s' * (spec.trials > 1)}, {spec.hours:g} h at most"
        console.print(
            f"[bold]{spec.name}[/]: {spec.proposer} in {spec.environment}, {limits}, isolation {spec.isolation.level}"
        )
        if spec.isolation.level == "none":
            console.print("trials run as you, without a sandbox: `nightshift doctor` says why", style="yellow")
        return run_and_show(campaign, dict(spec), server, as_json)
    finally:
        with contextlib.suppress(OSError):  # a reserved name that was never used: its directory is empty
            (home() / name).rmdir()


def _checked(asked: dict[str, Any], ledger: Ledger | None, trust: bool) -> CampaignSpec:
    """The campaign that is asked for, with what it was started with; of a new one, likely mistakes are told. Raises
    Refused: it can be seen to fail, or its environment asks for more than its folder and nobody agrees.
    """
    from flows.budget import check_budget
    from flows.spec.campaign_spec import CampaignSpec

    if ledger:
        ledger.check_version()
    spec = CampaignSpec.of(**(laid_over(ledger.spec, asked) if ledger else asked))
    environment = None if ledger else permissions.require_named(spec.environment, spec.advanced.overrides, trust)
    spec.check()
    check_budget(spec)
    for doubt in validation.warnings(environment) if environment else ():
        print(f"warning: {doubt}", file=sys.stderr)
    return spec


def start_detached(spec: CampaignSpec, api: str | None, as_json: bool) -> int:
    """Start a process, in a session of its own, that runs the campaign, and wait until it holds the campaign's lock; 0,
    or the exit code of a process that ended before, whose output is copied to stderr.
    """
    with TemporaryDirectory(prefix=".detached-", dir=home()) as aside:  # a new campaign's own directory must be empty
        asked, log = Path(aside, "spec.toml"), Path(aside, "console.log")
        # -P: keeps a folder called `flows` in the working directory from being imported.
        command = [sys.executable, "-P", "-m", "flows.cli", "run", str(asked), *(["--server", api] if api else [])]
        write_atomic(asked, spec.toml(), mode=0o600)
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        try:
            while process.poll() is None and not _is_run_by(spec.name, process.pid):
                time.sleep(0.1)
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
        if process.returncode:
            sys.stderr.write(log.read_text(errors="replace"))
            return process.returncode
        log = log.rename(home() / spec.name / "console.log")
    process.returncode = 0  # it outlives this command, which must not wait for it
    here = f"{terminal.binaries()}nightshift"
    words = f"{spec.name} runs in the background (process {process.pid}): {log}\n"
    words += f"  {here} status {spec.name} --watch\n  {here} stop {spec.name}"
    terminal.tell({"campaign": spec.name, "pid": process.pid}, words, as_json)
    return 0


def _is_run_by(name: str, pid: int) -> bool:
    if not Ledger.exists(name):
        return False
    ledger = Ledger.open(name)
    return campaign_lock.is_running(ledger) and campaign_lock.holder(ledger).get("pid") == pid


def newest_unfinished() -> str:
    """The name of the newest campaign that can be resumed. Refused if there is none."""
    unfinished = [ledger.campaign.name for ledger in readable() if state(ledger) in ("interrupted", "stopped")]
    if not unfinished:
        raise Refused("no campaign is unfinished: name one to extend it, for example with more --trials")
    return unfinished[-1]


def run_and_show(flow: Any, parameters: dict[str, Any], server: str | None, as_json: bool) -> int:
    """Run a flow of a campaign, and print its status; the exit code.

    Args:
        parameters: Of the flow, the campaign's `name` among them.
        server: The Prefect server that --server names.
    """
    name, console = parameters["name"], terminal.console(as_json)
    api = server_process.stated_server(server, home())
    try:
        with CampaignWatch(name, console), server_process.prefect_server(api, home()) as url:
            console.print(f"Prefect: {without_passwords(url.removesuffix('/api'))}", style="dim")
            if shortfall := _run(flow, parameters, url):
                console.print(f"{shortfall}; the ledger has everything", style="yellow")
    except KeyboardInterrupt:
        print(f"\nnightshift: interrupted; {_how_to_go_on(flow, name)}", file=sys.stderr)
        return 130
    except (OSError, httpx.HTTPError, CannotStart) as fault:  # the machine's: no space, no server, or a busy one
        print(f"nightshift: {fault}\n{_how_to_go_on(flow, name)}", file=sys.stderr)
        return 1
    if not as_json:
        print()
    return print_status(Ledger.open(name), as_json)


def _run(flow: Any, parameters: dict[str, Any], url: str) -> str:
    """Run a flow until the server has stored all of its task runs; what the server lacks then, or an empty text."""
    from prefect.exceptions import Abort

    name, began = parameters["name"], time.time()
    try:
        ending = flow(**parameters, return_state=True)
    except Abort as cancelled:  # by a person, in the Prefect UI
        raise KeyboardInterrupt from cancelled
    except httpx.TransportError:
        if not _ended_since(name, began):
            raise
        return "the Prefect server is gone, its pages lack the end"
    except RuntimeError as unreached:
        if UNREACHED in str(unreached):
            raise ConnectionError(str(unreached)) from unreached
        raise
    finally:
        server_process.drain(url)
    if ending.is_crashed() or (ending.is_failed() and not _ended_since(name, began)):
        ending.result()  # raises what ended the flow, which is not a campaign that failed
    is_told = server_process.wait_for_rows(str(ending.state_details.flow_run_id))
    return "" if is_told else "the Prefect server lacks some task runs"


def _ended_since(name: str, moment: float) -> bool:
    """Whether the campaign has ended, in whatever state, after that moment (Unix time)."""
    end = ended(Ledger.open(name)) if Ledger.exists(name) else {}
    return bool(end) and end["time"] >= moment


def _how_to_go_on(flow: Any, name: str) -> str:
    again = f"nightshift resume {name}" if flow.name == "campaign" else shlex.join(["nightshift", *sys.argv[1:]])
    return f"nothing finished is lost: {again}" if Ledger.exists(name) else "nothing had begun yet"
