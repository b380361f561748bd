"""The lives of a small campaign, for benchmarks that end them: how one is begun, watched, and killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tasks.sandbox import supervisor
from tasks.store.ledger import Ledger
from tasks.system import orphans
from tasks.trial import History

FILES = {
    "fit.py": """\
import argparse, json, pathlib, subprocess, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--out", type=pathlib.Path)
parser.add_argument("--seconds", type=float)
parser.add_argument("--worker", action="store_true")
given = parser.parse_args()
if not given.worker:
    sys.exit(subprocess.run([sys.executable, *sys.argv, "--worker"]).returncode != 0)
time.sleep(given.seconds)
(given.out / "model.json").write_text(json.dumps({"x": given.x}))
""",
    "judge.py": """\
import json, pathlib, sys
x = json.loads(pathlib.Path(sys.argv[1], "model.json").read_text())["x"]
pathlib.Path(sys.argv[2]).write_text(json.dumps({"score": (x - 1) ** 2}))
""",
    "environment.toml": """\
title = "Quadratic"
metric = "loss"
direction = "minimize"
trainer = "command"
program = ["fit.py"]
train_cmd = "python fit.py --x {x} --out {out} --seconds SECONDS"
budget_seconds = 20
startup_seconds = 2
grace_seconds = 0.5
deterministic = true
allow_untrained = true
judge = "command"
command.eval_cmd = "python judge.py {out} {result}"
limits.least_seconds = 0
space.x = { type = "float", low = -3.0, high = 3.0, default = 2.5 }
""",
}
"""Minimise (x - 1)^2. A worker, the program's child, makes the model; the same x has the same score every time."""
SERVER_SECONDS = 180.0
END_SECONDS = 90.0
"""How long a life that was asked to end may take, on a busy machine."""
POLL_SECONDS = 0.002


def write_problem(folder: Path, *, seconds: float, proposer: str, seed: int) -> Path:
    """An environment whose trainings sleep for so many seconds, and a spec.toml for a campaign in it."""
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("SECONDS", f"{seconds:g}"))
    spec = folder / "spec.toml"
    spec.write_text(
        f'environment = "."\nproposer = "{proposer}"\nrule = "greedy"\nseed = {seed}\nadvanced.crash_share = 1.0\n'
    )
    return spec


def wait_for_answer(url: str, seconds: float, log: Path) -> None:
    """Return once a server says that it is healthy. Raises TimeoutError: it does not; the message names its log."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=5).is_success:
                return
        time.sleep(0.2)
    raise TimeoutError(f"no answer from {url} in {seconds:g} s: see {log}")


@dataclass
class Server:
    """A Prefect server of the benchmark's own, that can be killed and started again at the same address."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, folder: Path, port: int) -> Server:
        folder.mkdir(exist_ok=True)
        # Its clients are this process and its children.
        known = os.environ.setdefault("PREFECT_API_AUTH_STRING", f"nightshift:{secrets.token_urlsafe(18)}")
        login = {"PREFECT_SERVER_API_AUTH_STRING": known}
        with (folder / "server.log").open("ab") as log:
            command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
            process = subprocess.Popen(
                command, env={**os.environ, **login, "PREFECT_HOME": str(folder), "PREFECT_SERVER_UI_ENABLED": "false"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return cls(folder, port, process)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def wait(self) -> None:
        """Return once it answers. Raises TimeoutError if it does not."""
        wait_for_answer(self.url, SERVER_SECONDS, self.folder / "server.log")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.process = Server.start(self.folder, self.port).process
        self.wait()


class Life(subprocess.Popen[bytes]):
    """The command in a process of its own, as a user starts it, which runs a campaign."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log, self.began = log, time.time()
        command = [sys.executable, "-m", "flows.cli", *arguments]
        with log.open("ab") as output:
            super().__init__(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)

    @property
    def is_over(self) -> bool:
        return self.poll() is not None

    def ends_within(self, seconds: float) -> bool:
        return until(lambda: self.is_over, seconds)


def history(campaign: str) -> History:
    return Ledger.open(campaign).history() if Ledger.exists(campaign) else ()


def wait_for_life(campaign: str, life: Life) -> float | None:
    """When the event `life` of this process came, in seconds after its start; None when it ended before."""
    found: list[float] = []

    def lives() -> bool:
        if Ledger.exists(campaign):
            found.extend(
                event["time"]
                for event in Ledger.open(campaign).events()
                if event["event"] == "life" and event["pid"] == life.pid and event["time"] >= life.began - 1
            )
        return bool(found) or life.is_over

    until(lives, END_SECONDS, every=0.02)
    return found[0] - life.began if found else None


def _result(step: str) -> Callable[[Ledger, int], Path]:
    return lambda ledger, number: ledger.results / str(ledger.key(number)) / step


MARKS: dict[str, Callable[[Ledger, int], Path]] = {
    "a result is begun": _result("."),  # the folder changes when a file is made, before anything stands in it
    "proposal.json": lambda ledger, number: ledger.place(number).proposal,
    "result of propose": _result("propose"),
    "its workspace": lambda ledger, number: ledger.place(number).config,
    "its model": lambda ledger, number: ledger.place(number).out / "model.json",
    "result of train": _result("train"),
    "result of evaluate": _result("evaluate"),
    "its commit": lambda ledger, number: ledger.path / f"lineage.git/refs/trials/{number:04d}",
    "diff.patch": lambda ledger, number: ledger.place(number).diff,
    "trial.json": lambda ledger, number: ledger.place(number).trial,
    "results.tsv": lambda ledger, number: ledger.path / "results.tsv",
    "MLflow's record": lambda ledger, number: ledger.path / "mlflow.json",
}
"""What a trial leaves one after another, by what a kill right then is called."""


def wait_for_mark(ledger: Ledger, life: Life, mark: str, parallel: int, seconds: float = 60.0) -> bool:
    """Return the moment a trial that was not finished leaves this mark; whether one did before the life ended."""
    finished = sum(path.is_file() for path in ledger.trials.glob("[0-9][0-9][0-9][0-9]/trial.json"))
    paths = [MARKS[mark](ledger, number) for number in range(finished, finished + parallel + 1)]
    before = [_stamp(path) for path in paths]

    def changed() -> bool:
        now = [_stamp(path) for path in paths]
        return any(new and new != old for new, old in zip(now, before, strict=True)) or life.is_over

    return until(changed, seconds, POLL_SECONDS) and not life.is_over


def _stamp(path: Path) -> tuple[int, int] | None:
    """What tells a file from one that stood there before; None while there is none, or nothing in it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns) if found.st_size else None


def relatives(ledger: Ledger, draw: random.Random) -> dict[str, tuple[psutil.Process, int]]:
    """Processes of a trial in training, other than the baseline, by what they are, and the trial's number."""
    found: dict[str, tuple[psutil.Process, int]] = {}
    processes = list(orphans.marked(ledger.campaign.campaign_id))
    draw.shuffle(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error, ValueError):
            number = int(process.environ()[orphans.MARKER].split("/")[1])
            command = process.cmdline()
            if number == 0 or not any(part.endswith("fit.py") for part in command):
                continue
            if Path(command[0]).name != "bwrap":
                found["worker" if "--worker" in command else "program"] = process, number
            for other in process.parents():
                if supervisor.__file__ in other.cmdline():
                    found["supervisor"] = other, number
    return found


def left_over(ledger: Ledger) -> int:
    """Processes of a campaign's trials that are alive, their supervisors among them."""
    name = ledger.campaign.campaign_id
    found = list[psutil.Process]()
    for variable in (orphans.MARKER, orphans.SUPERVISOR):
        found += orphans.marked(name, variable) + orphans.marked(f"launched/{name}", variable)
    return len(set(found))


def until(is_true: Callable[[], bool], seconds: float, every: float = 0.01) -> bool:
    """Wait until it is true; False when it is not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (true := is_true()) and time.monotonic() < deadline:
        time.sleep(every)
    return true


def whole(path: Path) -> bool:
    """Whether a result file was written to its end."""
    try:
        json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return True
