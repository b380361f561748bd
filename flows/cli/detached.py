"""`nightshift run --detach`: a campaign without a terminal, in a session of its own; it logs to its console.log."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from flows.cli.set_option import STDIN
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
    # The directory of a new campaign must be empty when it is made, so its log begins beside it.
    exists = Ledger.exists(spec.name)
    log = home() / spec.name / "console.log" if exists else home() / f".{spec.name}.{os.getpid()}.log"
    length = log.stat().st_size if log.exists() else 0
    # -P: keeps a folder called `flows` in the working directory from being imported.
    command = [sys.executable, "-P", "-m", "flows.cli", "run", STDIN, *(["--server", api] if api else [])]
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
        sys.stderr.write(log.read_bytes()[length:].decode(errors="replace"))
        if not Ledger.exists(spec.name):
            log.unlink()
            with contextlib.suppress(OSError):  # the directory that reserved its name is empty, or gone already
                (home() / spec.name).rmdir()
        return process.returncode
    process.returncode = 0  # it outlives this command, which must not wait for it
    log.rename(home() / spec.name / "console.log")
    if as_json:
        terminal.print_json({"campaign": spec.name, "pid": process.pid})
        return 0
    here = f"{terminal.binaries()}nightshift"
    print(f"{spec.name} runs in the background (process {process.pid}): {home() / spec.name / 'console.log'}")
    print(f"  {here} status {spec.name} --watch\n  {here} stop {spec.name}")
    return 0


def _is_run_by(name: str, pid: int) -> bool:
    if not Ledger.exists(name):
        return False
    ledger = Ledger.open(name)
    return campaign_lock.is_running(ledger) and campaign_lock.holder(ledger).get("pid") == pid
