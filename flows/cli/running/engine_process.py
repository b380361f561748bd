"""A campaign in a process of its own, which its parent may kill and start again, and which does not outlive it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from types import TracebackType

from tasks.store.ledger import Ledger
from tasks.system.home import home

PR_SET_PDEATHSIG = 1
FOREIGN = ("PREFECT_", "MLFLOW_")
"""What begins so names servers and profiles that a toy has no business with."""
LOOK_SECONDS = 0.05


class EngineProcess:
    """The command that runs a campaign. Its output goes to the campaign's console.log, once there is a campaign."""

    def __init__(self, campaign: str) -> None:
        self._campaign = campaign
        self._log = home() / f".{campaign}.{os.getpid()}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """End it as Ctrl-C would: what is finished stays, and it can be resumed."""
        if self.is_alive():
            assert self._process is not None
            self._process.terminate()
            self._process.wait()
        self._file_log()

    def start(self, *arguments: str, text: str = "") -> None:
        """Start `nightshift ARGUMENTS` with this text on its standard input."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        # -P: keeps a folder called `flows` in the working directory from being imported.
        command = [sys.executable, "-P", "-m", "flows.cli", *arguments]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment,
                start_new_session=True,  # Ctrl-C reaches it once, by __exit__
                preexec_fn=self._end_with_parent,
            )  # fmt: skip
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write(text.encode())

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> int:
        """SIGKILL; returns its process id."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        return self._process.pid

    def wait(self) -> None:
        while self.is_alive():
            time.sleep(LOOK_SECONDS)

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll() if self._process else None

    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    def _file_log(self) -> None:
        """Put the output beside the campaign's other files, or away if there is no campaign."""
        with contextlib.suppress(FileNotFoundError):  # nothing was started
            if Ledger.exists(self._campaign):
                self._log.replace(home() / self._campaign / "console.log")
            else:
                self._log.unlink()

    def _end_with_parent(self) -> None:
        """In the child: be asked to end when the parent dies, however that happens."""
        if self._prctl:
            self._prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
