"""Every feature once, in a minute: the campaign of environments/showcase, killed in a training and resumed.

    make showcase, or python -m benchmarks.showcase [RUN OPTIONS]

What is shown is what `nightshift run` and `nightshift resume` print: a keep, a discard, a code edit, an early stop, a
crash, a cheat that is refused and one that gains nothing, a kill -9 and the certificate after it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import environments
from tasks.store.ledger import Ledger, free_name

KILL_FROM = 3
"""The first trial in whose training the engine is killed: some are decided, and some are left."""
REPORTS = 4
"""Reports of that training before the kill."""
LOOK_SECONDS = 0.05


def is_due(name: str) -> bool:
    """Whether a trial is in the middle of its training, and is not one of the first."""
    if not Ledger.exists(name):
        return False
    ledger = Ledger.open(name)
    number = max((int(path.name) for path in ledger.trials.iterdir() if path.name.isdecimal()), default=0)
    place = ledger.place(number)
    progress = place.progress.read_text() if place.progress.is_file() else ""
    return number >= KILL_FROM and not place.trial.exists() and progress.count("\n") > REPORTS


def main(options: list[str]) -> int:
    name, nightshift = free_name("showcase"), [sys.executable, "-m", "flows.cli"]
    spec = environments.find("showcase") / "showcase.toml"
    with subprocess.Popen([*nightshift, "run", str(spec), "--name", name, "--trust", *options]) as engine:
        while engine.poll() is None and not is_due(name):
            time.sleep(LOOK_SECONDS)
        engine.kill()
    if engine.returncode != -signal.SIGKILL:
        return engine.returncode
    print(f"\nkill -9 {engine.pid}: the engine, in the middle of a training. Now `nightshift resume {name}`:\n")
    return subprocess.run([*nightshift, "resume", name], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
