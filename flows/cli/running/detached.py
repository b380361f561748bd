"""A campaign without a terminal: `nightshift run` in a session of its own, its lines in the campaign's console.log."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from flows.cli.running.foreground import STDIN
from flows.spec.campaign_spec import CampaignSpec
from flows.views import terminal
from tasks.store import life
from tasks.store.ledger import Ledger
from tasks.system.home import home


def start(spec: CampaignSpec, api: str | None, as_json: bool) -> int:
    """Have another process run the campaign, and wait until it has begun; the command's exit code.

    That is 0 once the campaign's lock is held there; else what the other process ended with, and its words on stderr.
    """
    log = _log(spec.name)
    said_before = log.stat().st_size if log.exists() else 0
    # -P: a folder called `flows` where the command happens to be started is not ours.
    command = [sys.executable, "-P", "-m", "flows.cli", "run", STDIN, *(["--server", api] if api else [])]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
        )
    assert process.stdin is not None
    process.stdin.write(spec.toml().encode())
    process.stdin.close()
    try:
        while process.poll() is None and not _runs(spec.name, process.pid):
            time.sleep(0.1)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if process.returncode:
        _give_up(spec.name, log, said_before)
        return process.returncode
    process.returncode = 0  # it goes on without us
    log.rename(home() / spec.name / "console.log")
    _tell(spec.name, process.pid, as_json)
    return 0


def _log(name: str) -> Path:
    """Where its lines go: beside the campaign's directory until that is made, which must be empty for it."""
    return home() / name / "console.log" if Ledger.exists(name) else home() / f".{name}.{os.getpid()}.log"


def _runs(name: str, pid: int) -> bool:
    """Whether this process holds the campaign."""
    if not Ledger.exists(name):
        return False
    ledger = Ledger.open(name)
    return life.is_running(ledger) and life.holder(ledger).get("pid") == pid


def _give_up(name: str, log: Path, said_before: int) -> None:
    """Pass on what the other process said, and leave nothing of a campaign that never was."""
    with log.open("rb") as file:
        file.seek(said_before)
        sys.stderr.write(file.read().decode(errors="replace"))
    if not Ledger.exists(name):
        log.unlink()
        with contextlib.suppress(OSError):  # somebody else's files are there, or it is gone already
            (home() / name).rmdir()


def _tell(name: str, pid: int, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"campaign": name, "pid": pid})
        return
    here = terminal.binaries()
    print(f"{name} runs by itself now (process {pid}), whatever becomes of this terminal")
    steps = {
        "watch": f"{here}nightshift watch {name}",
        "how it is": f"{here}nightshift status {name}",
        "its lines": terminal.short(home() / name / "console.log"),
        "end it": f"{here}nightshift stop {name}",
    }
    for label, text in steps.items():
        print(f"  {label:<10} {text}")
