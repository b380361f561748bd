"""Runs a program, and starts it again where it dies, until it is asked to end.

    python -m tasks.system.keeper COMMAND...

It is started again only once whoever started the keeper has seen it work, and said so by SIGUSR1: one that cannot start
ends the keeper, with its status.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

PAUSE_SECONDS = 5.0
"""Before a program is started again."""
PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> int:
    """The program's exit status, once it was asked to end or could not be started."""
    ending = has_worked = False
    process: subprocess.Popen[bytes] | None = None

    def end(*_: object) -> None:
        nonlocal ending
        ending = True
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)

    def note(*_: object) -> None:
        nonlocal has_worked
        has_worked = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGUSR1, note)
    while True:
        # A group of its own, so that each of its processes gets one SIGTERM: some take a second one for kill -9.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_end_with_parent)
        if ending:  # meanwhile
            end()
        status = process.wait()
        if ending or not has_worked:
            return status
        sys.stderr.write(f"nightshift: it ended with status {status}, and is started again in {PAUSE_SECONDS:.0f} s\n")
        until = time.monotonic() + PAUSE_SECONDS
        while time.monotonic() < until and not ending:
            time.sleep(0.2)
        if ending:
            return status


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
