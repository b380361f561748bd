"""What the programs of the stand-in have in common: faults, configurations, logs, rows, ports."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[4]
Config = dict[str, Any]
COLOURS = {"INFO": "1", "SUCCESS": "32", "WARNING": "33", "ERROR": "31"}


def faults() -> dict[str, Any]:
    """What is said in faults.json."""
    said: dict[str, Any] = json.loads((CHECKOUT / "faults.json").read_text())
    return said


def mode_of(place: str | Path) -> str:
    """What is to happen in the run whose directory this is."""
    said = faults()
    trial = re.search(r"/trials/0*(\d+)", str(place))
    return str(said["trials"].get(trial[1], said["mode"]) if trial else said["mode"])


def read(path: str | Path) -> Config:
    """A configuration file: JSON by its suffix, else TOML."""
    text = Path(path).read_text()
    found: Config = json.loads(text) if str(path).endswith(".json") else tomllib.loads(text)
    return found


def laid_over(below: Config, above: Config) -> Config:
    """Tables are merged; everything else is replaced, lists as a whole."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


def at(config: Config, key: str, default: Any = None) -> Any:
    """The value of a dotted key."""
    found: Any = config
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            return default
        found = found[part]
    return found


def log(message: str, level: str = "INFO") -> None:
    """A line of the log, coloured even into a file, as LOGURU_FORCE_COLORS has it."""
    now, colour = time.strftime("%H:%M:%S"), COLOURS[level]
    sys.stdout.write(f"\x1b[2m{now}\x1b[0m \x1b[{colour}m{level:>7}\x1b[0m \x1b[{colour}m{message}\x1b[0m\n")
    sys.stdout.flush()


def failed(message: str, before: str = "") -> None:
    """The end of a traceback, on standard error; `before` stands in front of each line, as vLLM's processes have it."""
    lines = ["Traceback (most recent call last):", "  [...]", *message.splitlines()]
    sys.stderr.write("".join(f"{before}{line}\n" for line in lines))
    sys.stderr.flush()


def vllm(name: str) -> str:
    """What a process of vLLM puts in front of an error."""
    return f"\x1b[1;36m({name} pid={os.getpid()})\x1b[0;0m ERROR {time.strftime('%m-%d %H:%M:%S')} [core.py:718] "


class Monitor:
    """The file of metrics, to which two processes append."""

    def __init__(self, run_dir: Path, place: str) -> None:
        path = run_dir / place
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1)

    def row(self, step: int, **metrics: float | None) -> None:
        """One call is one row; what is not finite (None here) is left out of it."""
        kept = {name: value for name, value in metrics.items() if value is not None}
        self._file.write(json.dumps({"step": step, "time": time.time(), **kept}) + "\n")


def listen(port: int) -> socket.socket:
    """A bound and listening port of this machine; OSError where somebody has it."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    bound.listen()
    return bound


def connect(port: int) -> socket.socket:
    """A connection to a port of this machine, as soon as somebody listens there."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=600)
        except OSError:
            time.sleep(0.02)


class Below:
    """What a process has started, which ends with it when it is told to end; what it is, a deaf one never is."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, self._end)

    def start(self, *command: str, **how: Any) -> subprocess.Popen[bytes]:
        """Start a program, whose last argument says who started it."""
        process = subprocess.Popen([*command, str(os.getpid())], **how)
        self._started.append(process)
        return process

    def _end(self, *_: object) -> None:
        for process in self._started:
            process.terminate()
        os._exit(128 + signal.SIGTERM)


def leave_alone(parent: str) -> None:
    """End at once where whoever started this process was ended just then."""
    if os.getppid() != int(parent):
        os._exit(1)


def for_ever() -> None:
    """Do nothing until the process is ended."""
    while True:
        time.sleep(3600)
