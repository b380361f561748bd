"""`nightshift run --detach`: a campaign without a terminal, in a session of its own; it logs to its console.log."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.stated import STDIN
from flows.views import terminal
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system.home import home

if TYPE_CHECKING:
    from flows.spec.campaign_spec import CampaignSpec


def start(spec: CampaignSpec, api: str | None, as_json: bool) -> int:
    """Start a process that runs the campaign, and return once it holds the campaign's lock.

    Returns:
        0; or the exit code of a process that ended before, whose output is copied to stderr.
    """
    # The campaign's directory must be empty when it is made, so a new campaign's log begins beside it.
    exists = Ledger.exists(spec.name)
    log = home() / spec.name / "console.log" if exists else home() / f".{spec.name}.{os.getpid()}.log"
    size_before = log.stat().st_size if log.exists() else 0
    # --trust: the spec is this process's own, which has asked.
    # -P: keeps a folder called `flows` in the working directory from being imported.
    command = [sys.executable, "-P", "-m", "flows.cli", "run", STDIN, "--trust", *(["--server", api] if api else [])]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True)
    assert process.stdin is not None
    process.stdin.write(spec.toml().encode())
    process.stdin.close()
    try:
        while process.poll() is None and not _is_run_by(spec.name, process.pid):
            time.sleep(0.1)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if process.returncode:
        _report_failure(spec.name, log, size_before)
        return process.returncode
    process.returncode = 0  # it outlives this command, which must not wait for it
    log.rename(home() / spec.name / "console.log")
    _print_next_steps(spec.name, process.pid, as_json)
    return 0


def _is_run_by(name: str, pid: int) -> bool:
    if not Ledger.exists(name):
        return False
    ledger = Ledger.open(name)
    return campaign_lock.is_running(ledger) and campaign_lock.holder(ledger).get("pid") == pid


def _report_failure(name: str, log: Path, size_before: int) -> None:
    """Copy the process's output to stderr, and remove what it left if there is no campaign."""
    with log.open("rb") as file:
        file.seek(size_before)
        sys.stderr.write(file.read().decode(errors="replace"))
    if not Ledger.exists(name):
        log.unlink()
        with contextlib.suppress(OSError):  # it is gone already, or holds other files
            (home() / name).rmdir()


def _print_next_steps(name: str, pid: int, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"campaign": name, "pid": pid})
        return
    here = terminal.binaries()
    print(f"{name} runs in the background (process {pid})")
    steps = {
        "watch": f"{here}nightshift watch {name}",
        "status": f"{here}nightshift status {name}",
        "output": terminal.short(home() / name / "console.log"),
        "stop": f"{here}nightshift stop {name}",
    }
    for label, text in steps.items():
        print(f"  {label:<8} {text}")
