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

PAUSE_SECONDS = 5.0
"""Before a program is started again."""
PR_SET_PDEATHSIG = 1
SIGNALS = {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD}


def main(command: list[str]) -> int:
    """The program's exit status, once it was asked to end or could not be started."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # they are waited for
    has_worked = False
    while True:
        # A group of its own, so that each of its processes gets one SIGTERM: some take a second one for kill -9.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_end_with_parent)
        while process.poll() is None:
            told = signal.sigwait(SIGNALS)
            has_worked = has_worked or told == signal.SIGUSR1
            if told == signal.SIGTERM:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
                return process.wait()
        status = process.returncode
        if not (has_worked or signal.SIGUSR1 in signal.sigpending()):  # said, and not heard before it died
            return status
        sys.stderr.write(f"nightshift: it ended with status {status}, and is started again in {PAUSE_SECONDS:.0f} s\n")
        if signal.sigtimedwait({signal.SIGTERM}, PAUSE_SECONDS):
            return status


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
