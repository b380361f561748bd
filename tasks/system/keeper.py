"""Runs a program, and starts it again where it dies, until it is asked to end.

python -m tasks.system.keeper COMMAND...
"""

import ctypes
import os
import signal
import subprocess
import sys

PAUSE_SECONDS = 5.0
"""Before a program is started again."""
ENDED = "nightshift: the program has ended with status"
"""In its log, after each of its ends; it is started again then."""
PR_SET_PDEATHSIG = 1
SIGNALS = {signal.SIGTERM, signal.SIGCHLD}


def main(command: list[str]) -> int:
    """The program's exit status, once it was asked to end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # they are waited for
    while True:
        # A group of its own, so that each of its processes gets one SIGTERM: some take a second one for kill -9.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_end_with_parent)
        while process.poll() is None:
            if signal.sigwait(SIGNALS) == signal.SIGTERM:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
                return process.wait()
        sys.stderr.write(f"{ENDED} {process.returncode}\n")
        if signal.sigtimedwait({signal.SIGTERM}, PAUSE_SECONDS):
            return process.returncode


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
