"""`nightshift showcase`: every feature once, in about a minute and without a GPU or a key.

It runs the campaign of environments/showcase/showcase.toml as a user would: `nightshift run`, whose process is killed
in the middle of a training, then `nightshift resume`. It only tells what it reads in the campaign's directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
import tomllib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import tomlkit

import environments
from flows.cli.arguments import writing
from flows.cli.running import showcase_story as story
from flows.cli.running.engine_process import EngineProcess
from flows.report.write import REPORT
from flows.views import overview, terminal
from flows.views.follow import CampaignWatch
from flows.views.status import document
from tasks.sandbox.isolation import Isolation, choose
from tasks.store.ledger import Ledger, free_name
from tasks.system import orphans
from tasks.system.home import home
from tasks.tracking import sync
from tasks.trial import History, best, trials_before

ENVIRONMENT = "showcase"
KILL_IN = 3
"""The first trial in whose training the engine may be killed: some are decided, and some are left."""
REPORTS = 4
"""Reports of that training before the kill."""
LOOK_SECONDS = 0.05
SANDBOXED = ("edit", "cancelled", "crash", "refused")
"""What only proposals with code edits show. The canceller compares with an edited champion."""
FEATURES = ("keep", "discard", *SANDBOXED, "killed", "certificate", "report")


@dataclass
class Kill:
    """What there was when the engine was killed, and what became of it."""

    pid: int
    trial: int
    """The one in training."""
    decided: dict[int, str]
    """Digest of each trial that was decided, by its number."""
    steps: dict[str, int]
    """When each finished step of the flow was stored, by its file."""
    moment: float = field(default_factory=time.time)
    """Unix time."""
    left_alive: int = 0
    """Processes of the trial that outlived the engine by seconds."""
    changed: list[int] = field(default_factory=list)
    """Trials that are not what they were."""
    repeated: list[str] = field(default_factory=list)
    """Finished steps that were done again."""
    trained_again: bool = False
    """Whether that trial was trained afterwards; not if the kill came between its training and its verdict."""


def run(where: Path | None, isolation: str, allow_unsandboxed: bool, as_json: bool) -> int:
    """Run the showcase; the exit code, 1 if something that it promises was not seen.

    Args:
        where: The home for its campaign; None: the ordinary one.
    """
    if where:
        with writing(where, "--home"):
            where.expanduser().mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ["NIGHTSHIFT_HOME"] = str(where.expanduser().absolute())
    sandbox = Isolation(choose(isolation), allow_unsandboxed)
    left_out = () if sandbox.may_run("an edit") else SANDBOXED
    console, name = terminal.console(as_json), free_name(ENVIRONMENT)
    story.begin(console, name, sandbox, left_out)
    lines = partial(story.lines, terminal.is_screen(console))
    try:
        with EngineProcess(name) as engine:
            engine.start("run", "/dev/stdin", "--trust", text=spec_text(name, sandbox, edits=not left_out))
            with CampaignWatch(name, console, lines):
                kill = _kill_in_training(engine, name)
            if kill:
                story.killed(console, kill.pid, kill.trial, len(kill.decided), kill.left_alive)
                engine.start("resume", name)
                with CampaignWatch(name, console, lines):
                    engine.wait()
            if not Ledger.exists(name):
                print(engine.output(), file=sys.stderr, end="")
                return max(engine.status or 1, 1)  # below 0: killed by a signal
    except KeyboardInterrupt:
        again = f"nothing finished is lost: nightshift resume {name}" if Ledger.exists(name) else "nothing had begun"
        print(f"\nnightshift: interrupted; {again}", file=sys.stderr)
        return 130
    finally:
        with contextlib.suppress(OSError):  # a reserved name that was never used: its directory is empty
            (home() / name).rmdir()
    ledger = Ledger.open(name)
    if kill:
        _compare(kill, ledger)
    if engine.status:
        log = terminal.short(ledger.path / "console.log")
        print(f"nightshift: the campaign's process ended with status {engine.status}: see {log}", file=sys.stderr)
    return _conclude(ledger, kill, left_out, where, as_json)


def spec_text(name: str, sandbox: Isolation, edits: bool) -> str:
    """The campaign's spec.toml, with what the command line says; without code edits where nothing confines them."""
    spec = tomllib.loads((environments.find(ENVIRONMENT) / "showcase.toml").read_text())
    advanced = spec["advanced"]
    if not edits:
        kept = [entry for entry in advanced["options"]["proposals"] if "edit" not in entry]
        advanced["options"]["proposals"], spec["trials"] = kept, len(kept)
    advanced |= {"isolation": sandbox.level, "allow_unsandboxed": sandbox.allow_unsandboxed}
    return tomlkit.dumps({**spec, "name": name})


def _kill_in_training(engine: EngineProcess, name: str) -> Kill | None:
    """Kill the engine in the middle of a training; None if the campaign ended before."""
    ledger: Ledger | None = None
    while engine.is_alive():
        time.sleep(LOOK_SECONDS)
        ledger = ledger or (Ledger.open(name) if Ledger.exists(name) else None)
        if ledger is None or (trial := _in_training(ledger)) is None:
            continue
        pid = engine.kill()
        steps = {str(path): path.stat().st_mtime_ns for path in ledger.results.rglob("*") if path.is_file()}
        kill = Kill(pid, trial, _decided(ledger), steps)
        deadline = time.monotonic() + orphans.SUPERVISOR_SECONDS
        while (alive := orphans.marked(ledger.campaign.campaign_id)) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        kill.left_alive = len(alive)
        return kill
    return None


def _in_training(ledger: Ledger) -> int | None:
    """The trial whose training has made some reports; None while there is none, or it is too early for a kill."""
    numbers = sorted(int(path.name) for path in ledger.trials.iterdir() if path.name.isdigit())
    if not numbers or numbers[-1] < KILL_IN or (place := ledger.place(numbers[-1])).trial.exists():
        return None
    reports = place.progress.read_bytes().count(b"\n") if place.progress.is_file() else 0
    return numbers[-1] if reports > REPORTS else None


def _decided(ledger: Ledger) -> dict[int, str]:
    every = {trial.number: ledger.place(trial.number).trial for trial in ledger.history()}
    return {number: hashlib.sha256(path.read_bytes()).hexdigest() for number, path in every.items()}


def _compare(kill: Kill, ledger: Ledger) -> None:
    """Note what is not as it was at the kill."""
    now = _decided(ledger)
    kill.changed = [number for number, digest in kill.decided.items() if now.get(number) != digest]
    times = {path: Path(path).stat().st_mtime_ns if Path(path).is_file() else 0 for path in kill.steps}
    kill.repeated = [path for path, moment in kill.steps.items() if times[path] != moment]
    config = ledger.place(kill.trial).config
    kill.trained_again = config.is_file() and config.stat().st_mtime > kill.moment


def _conclude(ledger: Ledger, kill: Kill | None, left_out: tuple[str, ...], where: Path | None, as_json: bool) -> int:
    """Print the end; the exit code."""
    status, console, report = document(ledger), terminal.console(as_json), ledger.path / REPORT
    shown = features(status, ledger.history(), kill, report.is_file())
    missing = [name for name, trial in shown.items() if trial is None and name not in left_out]
    diffs = [ledger.place(shown["edit"]).diff] if shown["edit"] is not None else []
    if as_json:
        at_kill = kill and {
            "pid": kill.pid, "trial": kill.trial, "decided": sorted(kill.decided), "steps": len(kill.steps),
            "left_alive": kill.left_alive, "changed": kill.changed, "repeated": kill.repeated,
            "trained_again": kill.trained_again,
        }  # fmt: skip
        terminal.print_json({
            "status": status, "shown": shown, "left_out": list(left_out), "kill": at_kill,
            "mlflow_runs": _mlflow_runs(ledger), "report": str(report), "diffs": list(map(str, diffs)),
        })  # fmt: skip
    else:
        if kill:
            counts = len(kill.decided), len(kill.changed), len(kill.steps), len(kill.repeated)
            again = kill.trial if kill.trained_again else None
            story.resumed(console, again, *counts, len(status["trials"]), _mlflow_runs(ledger))
        story.certificate(console)
        overview.show(status, ledger.path, console)
        story.end(console, report, diffs, home() if where else None)
    if missing:
        print(f"nightshift: this showcase did not show: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing or status["state"] == "failed" else 0


def features(status: dict[str, Any], history: History, kill: Kill | None, report: bool) -> dict[str, int | None]:
    """The number of the trial that shows a feature, None where it was not seen; 0 for those of the whole campaign."""
    shown: dict[str, int | None] = dict.fromkeys(FEATURES)
    for trial in (one for one in history if one.number > 0):
        before = best(trials_before(history, trial))
        edits = bool(trial.proposal.edit) and (before is None or trial.proposal.edit != before.proposal.edit)
        kept_edit = edits and trial.verdict.kind == "keep"
        shown["edit" if kept_edit else trial.verdict.kind] = trial.number
    shown["refused"] = next((one["trial"] for one in status["incidents"] if one["kind"] == "turned down"), None)
    whole = kill and not kill.left_alive and not kill.changed and not kill.repeated
    certified = status["certificate"] is not None and status["shipped"] is not None
    shown |= {name: 0 for name, seen in (("killed", whole), ("certificate", certified), ("report", report)) if seen}
    return shown


def _mlflow_runs(ledger: Ledger) -> int | None:
    """How many runs MLflow has of the campaign's trials; None with tracking off."""
    known = sync.last(ledger)
    return len(known.runs) if known.store else None
