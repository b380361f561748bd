"""Behind the command's verbs: run or resume a campaign from the terminal, stop one, read its logs."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import signal
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from environments import FILE, plugins
from environments.plugins import Refused
from flows.cli.set_option import parse_settings
from flows.engine.chaining import goes_on
from flows.server import connect
from flows.spec.options import AdvancedOptions
from flows.views import tables, terminal
from flows.views.follow import Watch
from flows.views.status import document, ended, state, stored_spec
from tasks.sandbox.program import CannotStart
from tasks.store import life
from tasks.store.ledger import Ledger, campaigns, free_name
from tasks.system.home import home
from tasks.system.redact import clean
from tasks.tracking.client import locate

STDIN = "/dev/stdin"
"""As the name of a spec.toml: one that another program writes."""
OVERRIDES = "overrides"
LEDGER = "the ledger has everything"
UNREACHED = "Failed to reach API"
"""Prefect's words for a server that died before it was told of a run."""
LOST_ROWS_SECONDS = 10.0
"""How long rows are waited for at a server that died: some of them were lost with it."""


def stated(environment: str | None, *, settings: list[str], **given: Any) -> dict[str, Any]:
    """What the command line states, as parameters of the flow; what it leaves out is not there."""
    set_ = parse_settings(settings)
    base: dict[str, Any] = {}
    if environment and environment.endswith((".toml", STDIN)):
        base = _read_spec(Path(environment))
    elif environment:
        base = {"environment": _lasting(environment)}
    flat = {key: value for key, value in {**given, **set_.stated}.items() if value is not None}
    advanced = {key: flat.pop(key) for key in AdvancedOptions.__annotations__ if key in flat}
    return _laid_over(base, {**flat, "advanced": advanced})


def run(stated: dict[str, Any], server: str | None, as_json: bool, detach: bool = False) -> int:
    """Run or go on with a campaign until it ends, or with `detach` until it has begun; the command's exit code."""
    connect.settle_in(home())
    from flows.cli.running import detached
    from flows.spec.campaign_spec import CampaignSpec

    name = stated.get("name")
    known = stored_spec(Ledger.open(name)) if name and Ledger.exists(name) else None
    parameters = _laid_over(known or {}, stated)
    if "environment" not in parameters:
        plugins.require(str(name), campaigns(), what="campaign")
    spec = CampaignSpec.of(**{"name": f"unnamed-{secrets.token_hex(8)}", **parameters})
    spec.check()
    if known and not _more_than_a_name(stated) and _is_over(Ledger.open(spec.name)):
        return report(Ledger.open(spec.name), as_json)
    if known and life.is_running(Ledger.open(spec.name)):
        raise Refused(f"campaign {spec.name!r} is already running ({life.describe(Ledger.open(spec.name))})")
    api = connect.stated_server(server, home())
    with connect.used(api, home()) if api else contextlib.nullcontext():
        locate(spec.tracking, home())
    if not name:
        spec = spec.model_copy(update={"name": free_name(Path(spec.environment).name)})
    if detach:
        return detached.start(spec, api, as_json)
    console = Console(highlight=False, quiet=as_json)
    limits = f"{spec.trials} trials, {spec.hours:g} h at most"
    walls = f"isolation {spec.isolation.level}"
    console.print(f"[bold]{spec.name}[/]: {spec.proposer} in {spec.environment}, {limits}, {walls}")
    if walls == "isolation none":
        console.print("trials run as you, without walls: `nightshift doctor` says why", style="yellow")
    try:
        with Watch(spec.name, console), connect.prefect_server(api, home()) as url:
            console.print(f"Prefect: {url.removesuffix('/api')}", style="dim")
            from flows.campaign import campaign

            whole = {field: getattr(spec, field) for field in type(spec).model_fields}
            while run_flow(campaign, whole, url, console):
                console.print("goes on in another flow run", style="dim")
    except KeyboardInterrupt:
        print(f"\nnightshift: interrupted; {_how_to_go_on(spec.name)}", file=sys.stderr)
        return 130
    except (OSError, httpx.TransportError, CannotStart) as fault:  # the machine's: no space, a server gone
        print(f"nightshift: {fault}\n{_how_to_go_on(spec.name)}", file=sys.stderr)
        return 1
    finally:
        with contextlib.suppress(OSError):  # a name that was reserved and never used: its directory is empty
            (home() / spec.name).rmdir()
    return report(Ledger.open(spec.name), as_json)


def run_flow(flow: Any, parameters: dict[str, Any], url: str, console: Console) -> bool:
    """A flow of a campaign, whose name is among the parameters; the server has all of its task runs afterwards.

    Returns:
        Whether it has done its share, and another run is to go on (flows/engine/chaining.py).
    """
    name, began = parameters["name"], time.time()
    try:
        ending = flow(**parameters, return_state=True)
    except httpx.TransportError:
        if not _ended_since(name, began):
            raise
        ending = None
    except RuntimeError as unreached:
        if UNREACHED in str(unreached):
            raise ConnectionError(str(unreached)) from unreached
        raise
    finally:
        connect.drain(url)
    if ending is None:
        console.print(f"the Prefect server is gone, its pages lack the end; {LEDGER}", style="yellow")
        return False
    if ending.is_crashed() or (ending.is_failed() and not _ended_since(name, 0.0)):
        ending.result()  # raises what ended the flow: a fault of ours or of the machine, not a campaign that failed
    if goes_on(ending):  # its rows are stored before those of the run that follows, which are waited for
        return True
    again = connect.was_started_anew(url, home(), began)
    seconds = LOST_ROWS_SECONDS if again else connect.ROWS_SECONDS
    run, who = str(ending.state_details.flow_run_id), connect.credentials(url, home())
    if not connect.wait_for_rows(url, run, who, seconds):
        why = "died, was started anew, and lacks some task runs" if again else "lacks some task runs yet"
        console.print(f"the Prefect server {why}; {LEDGER}", style="yellow")
    return False


def _ended_since(name: str, moment: float) -> bool:
    """Whether the campaign came to an end after that moment (Unix time), whatever end that was."""
    end = ended(Ledger.open(name)) if Ledger.exists(name) else {}
    return bool(end) and end["time"] >= moment


def _how_to_go_on(name: str) -> str:
    if Ledger.exists(name):
        return f"nothing finished is lost: nightshift resume {name}"
    return "nothing had begun yet"


def _more_than_a_name(stated: dict[str, Any]) -> bool:
    """Whether the command line says more than which campaign is meant."""
    return bool(set(stated) - {"name", "environment", "advanced"} or stated["advanced"])


def _is_over(ledger: Ledger) -> bool:
    """Whether another life could change nothing: the campaign finished, and MLflow has all of it."""
    found = document(ledger)
    return found["state"] == "finished" and not found["waiting_to_record"]


def report(ledger: Ledger, as_json: bool) -> int:
    """Print how a campaign stands; the exit code that says so too."""
    found = document(ledger)
    if as_json:
        terminal.print_json(found)
    else:
        console = Console(highlight=False)
        console.print()
        console.print(tables.campaign_table(found, console.width))
        terminal.outcome(found, console)
        terminal.what_next(found, ledger.path, console)
    return 1 if found["state"] == "failed" else 0


def newest() -> str:
    if not campaigns():
        raise Refused(f"there is no campaign in {home()} yet: begin one with `nightshift run cartpole`")
    return campaigns()[-1]


def newest_unfinished() -> str:
    unfinished = [name for name in campaigns() if state(Ledger.open(name)) in ("interrupted", "stopped")]
    if not unfinished:
        raise Refused(
            "no campaign is unfinished; name one to go on with a finished one (say, with more --trials)"
        )
    return unfinished[-1]


def watch(name: str) -> int:
    """Show a running campaign until it ends; Ctrl-C ends the watching alone. The exit code says how it ended.

    One that was killed or interrupted is 130, as it was for whoever ran it.
    """
    ledger = Ledger.open(name)
    if not life.is_running(ledger):
        raise Refused(
            f"campaign {name!r} is not running (it is {state(ledger)}): nightshift status {name} shows it"
        )
    try:
        with Watch(name, Console(highlight=False)):
            while life.is_running(ledger):
                time.sleep(0.2)
    except KeyboardInterrupt:
        print(f"\n{name} goes on; nightshift watch {name} shows it again")
        return 0
    code = report(ledger, as_json=False)
    return 130 if state(ledger) == "interrupted" else code


def stop(name: str, now: bool) -> int:
    """Ask a running campaign to end, and with `now` wait until it has."""
    ledger = Ledger.open(name)
    if not life.is_running(ledger):
        raise Refused(f"campaign {name!r} is not running (it is {state(ledger)})")
    if not now:
        (ledger.path / "stop").touch()
        print(f"{name} ends after the trial under way")
        return 0
    holder = life.holder(ledger)
    if holder["host"] != platform.node():
        raise Refused(
            f"campaign {name!r} runs on {holder['host']}: stop it there, or without --now from here"
        )
    os.kill(holder["pid"], signal.SIGTERM)
    deadline = time.monotonic() + 60
    while life.is_running(ledger):
        if time.monotonic() > deadline:
            raise Refused(f"process {holder['pid']} still holds {name!r} a minute after SIGTERM")
        time.sleep(0.1)
    print(f"{name} is stopped; nightshift resume {name}")
    return 0


def print_logs(name: str, trial: int | None, follow: bool, attempt: int | None = None) -> int:
    """Print a trial's logs, and go on while the campaign runs if asked to."""
    ledger = Ledger.open(name)
    numbers = sorted(int(path.name) for path in ledger.trials.iterdir() if path.name.isdigit())
    if not numbers:
        raise Refused(f"campaign {name!r} has no trial yet")
    number = numbers[-1] if trial is None else trial
    if number not in numbers:
        raise Refused(f"campaign {name!r} has no trial {number}: it has 0 to {numbers[-1]}")
    if attempt is not None and not 1 <= attempt <= ledger.attempt(number):
        raise Refused(
            f"trial {number} of campaign {name!r} has no attempt {attempt}: it has {ledger.attempt(number)}"
        )
    place = ledger.place(number, attempt=attempt)
    for title, path in (("training", place.log), ("under judgement", place.judge_log)):
        print(f"== trial {number}, {title}: {terminal.short(path)}")
        offset = _print_from(path, 0, whole=not follow)
        while follow and not place.trial.is_file() and life.is_running(ledger):
            time.sleep(0.2)
            offset = _print_from(path, offset, whole=False)
            if path == place.log and place.judge_log.is_file():
                break
        _print_from(path, offset, whole=True)
    return 0


def _print_from(path: Path, offset: int, whole: bool) -> int:
    """Print the lines that a log has beyond `offset`, as text that does nothing to a terminal; where they end."""
    if not path.is_file():
        return offset
    with path.open("rb") as file:
        file.seek(offset)
        new = file.read()
    if not whole:
        new = new[: new.rfind(b"\n") + 1]
    for line in clean(new.decode(errors="replace")):
        print(line)
    sys.stdout.flush()
    return offset + len(new)


def _read_spec(path: Path) -> dict[str, Any]:
    """A spec.toml; its environment, if a path, is relative to the file."""
    try:
        spec = tomllib.loads(path.read_text())
    except OSError as wrong:
        raise Refused(f"{path}: {wrong.strerror}") from wrong
    except ValueError as wrong:  # TOMLDecodeError, UnicodeDecodeError
        raise Refused(f"{path}: not TOML: {wrong}") from wrong
    if path.name == FILE:
        raise Refused(f"{path} is an environment, not a spec: name its folder, {path.absolute().parent}")
    if "environment" not in spec:
        raise Refused(f"{path}: environment: is required")
    spec["environment"] = _lasting(str(spec["environment"]), path.parent)
    return spec


def _lasting(reference: str, base: Path = Path()) -> str:
    """An environment's reference that means the same from any directory."""
    if "/" not in reference and not reference.startswith("."):
        return reference
    return str((base / Path(reference).expanduser()).resolve())


def _laid_over(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Parameters with others over them, `advanced` one level down as well, and what is set of the environment two."""
    below, above = base.get("advanced", {}), over.get("advanced", {})
    advanced = {**below, **above}
    if OVERRIDES in advanced:
        advanced[OVERRIDES] = {**below.get(OVERRIDES, {}), **above.get(OVERRIDES, {})}
    return {**base, **over, "advanced": advanced}
