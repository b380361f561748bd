"""The home of a night that a schedule begins, its servers and its campaign, and the faults that come in it."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.campaigns import WITHOUT_END, CommandFailed, commit, machine, nightshift, surroundings, today
from benchmarks.lives import wait_for_answer
from environments.space import Value
from flows.server import server_process
from flows.server.api import Api
from flows.server.mlflow_process import QUIET
from tasks.system import orphans
from tasks.system.daemon import HOST, Daemon, free_port

FAULTS = {"engine": 0.15, "worker": 0.25, "training": 0.35, "mlflow": 0.55, "disk": 0.72}
"""Shares of the night after which they come; the program is killed before the half that a certificate may take."""
OUTAGE = 0.05
"""Share of the night for which MLflow is gone."""
DISK_GB = 2
LEFT = 300 * 2**20
"""Bytes that are left on a full disk: too few for a campaign to go on enough for a running trial."""
UP_SECONDS = 60.0
POLL_SECONDS = 2.0
SELDOM = 15.0
"""Between two questions that take a second of a core, which the campaign should have."""
SLACK_SECONDS = 1800.0
"""How much longer than its hours a night may take."""
FIRST_PORT = 5100
DEPLOYMENT, LEFT_OUT = "night", "left out"


@dataclass(frozen=True)
class FaultRow:
    """One fault of one night."""

    night: str
    """The campaign."""
    environment: str
    hours: float
    fault: str
    minute: float
    """After the campaign's first trial began."""
    back: float | None
    """Seconds; empty where it did not come back."""
    hands: int
    lost: int
    words: str
    machine: str
    commit: str
    date: str

    @property
    def failed(self) -> bool:
        return self.back is None and not self.words.startswith(LEFT_OUT)


@dataclass
class ScheduledNight:
    """The home of the night, its servers and its campaign."""

    folder: Path
    environment: str
    hours: float
    changes: dict[str, Value]
    """Keys of environment.toml."""
    rule: str = "certify"
    proposer: str = "tpe"
    parallel: int = 1
    fidelity: str = "none"
    campaign: str = ""
    faults: list[FaultRow] = field(default_factory=list)
    mlflow: subprocess.Popen[bytes] | None = None
    mlflow_port: int = 0
    _looked: float = 0.0
    _began: float = 0.0

    @property
    def home(self) -> Path:
        return self.folder / "disk" / "home"

    @property
    def place(self) -> Path:
        return self.home / self.campaign

    @property
    def engine(self) -> int | None:
        """The process that holds the campaign."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads((self.place / "lock").read_text())["pid"])
            return pid if psutil.pid_exists(pid) else None
        return None

    def status(self) -> dict[str, Any]:
        return nightshift(self.home, "status", self.campaign, "--json")

    def keep_up(self) -> None:
        """`nightshift up`, as the timer calls it: once a minute."""
        if time.monotonic() - self._looked < UP_SECONDS:
            return
        command = [sys.executable, "-m", "flows.cli", "up"]
        done = subprocess.run(command, env=surroundings(self.home), capture_output=True, text=True, check=False)
        self._looked = time.monotonic()
        if done.returncode:
            print(f"nightshift up: {done.stderr.strip()}", file=sys.stderr)

    def until(self, holds: Callable[[], Any], seconds: float, what: str, every: float = POLL_SECONDS) -> float:
        """Wait until it holds, while the timer goes on; the seconds that it took. Raises TimeoutError."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"after {seconds:.0f} s still not: {what}")
            self.keep_up()
            time.sleep(every)
        return time.monotonic() - began

    def schedule(self) -> None:
        """Deploy the campaign with a schedule, and return once its first trial has begun."""
        self.until(lambda: Daemon(self.home / ".prefect", "worker").living(), 300, "a worker")
        note = Daemon(self.home / ".prefect", "server").living()
        if note is None:
            raise RuntimeError("the Prefect server of `nightshift up` is gone")
        due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=2)
        every_day = {"cron": f"{due.minute} {due.hour} * * *", "timezone": "UTC"}
        parameters = {
            "environment": self.environment, "trials": WITHOUT_END, "hours": self.hours, "rule": self.rule,
            "proposer": self.proposer, "parallel": self.parallel, "tracking": f"http://{HOST}:{self.mlflow_port}",
            "advanced": {"overrides": self.changes, "fidelity": self.fidelity},
        }  # fmt: skip
        with Api(note.url, server_process.credentials(note.url, self.home)) as api:
            flow = api.ask("POST", "/flows/", {"name": "campaign"})["id"]
            deployment = {
                "name": DEPLOYMENT, "flow_id": flow, "entrypoint": "flows.campaign.campaign", "pull_steps": [],
                "work_pool_name": "trainers", "tags": ["nightshift", "autoresume"], "parameters": parameters,
                "job_variables": {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}, "stream_output": False},
                "schedules": [{"active": True, "schedule": every_day}],
            }  # fmt: skip
            made = api.ask("POST", "/deployments/", deployment)["id"]
            has_begun = partial(self._has_begun, api, made)
            self.until(has_begun, 900, f"a campaign, scheduled for {due:%H:%M} UTC")
        with (self.place / "events.jsonl").open() as events:  # its own time: on a busy machine it is seen late
            first = json.loads(events.readline())
        self._began = time.monotonic() - (time.time() - first["time"])

    def _has_begun(self, api: Api, deployment: str) -> bool:
        """Whether the schedule's campaign has. Raises RuntimeError where its run has failed."""
        asked = {
            "deployments": {"id": {"any_": [deployment]}},
            "flow_runs": {"state": {"type": {"any_": ["FAILED", "CANCELLED"]}}},
        }
        for run in api.ask("POST", "/flow_runs/filter", asked):
            raise RuntimeError(f"the scheduled run {run['name']} has failed: {run['state']['message']}")
        found = sorted(self.home.glob(f"{DEPLOYMENT}-*/trials/0000"))
        self.campaign = found[0].parents[1].name if found else ""
        return bool(found)

    def run(self, skipped: dict[str, str]) -> None:
        """The faults in their turn, and the end of the campaign."""
        strikes = {
            "engine": self._kill_engine, "worker": self._kill_worker, "training": self._kill_training,
            "mlflow": self._stop_mlflow, "disk": self._fill_disk,
        }  # fmt: skip
        for fault, share in FAULTS.items():
            if fault in skipped:
                self._note(fault, None, 0, self._decided(), f"{LEFT_OUT}: {skipped[fault]}")
                continue
            self.until(partial(self._late, share), self.hours * 3600 + SLACK_SECONDS, fault)
            before = self._decided()
            try:
                if self.status()["state"] == "finished":
                    raise TimeoutError("the campaign had ended before")
                back, hands, words = strikes[fault]()
            except (TimeoutError, CommandFailed) as failed:
                back, hands, words = None, 0, str(failed)
            self._note(fault, back, hands, before, words)
        limit = self.hours * 3600 + SLACK_SECONDS
        over = lambda: self.status()["state"] not in ("running", "interrupted")  # noqa: E731
        self.until(over, limit, "the end of the campaign", SELDOM)

    def _late(self, share: float) -> bool:
        """Whether that share of the night is over, or the campaign has ended before."""
        return time.monotonic() - self._began > share * self.hours * 3600

    def _decided(self) -> dict[str, bytes]:
        """What is stored of each finished trial."""
        return {path.parent.name: path.read_bytes() for path in self.place.glob("trials/[0-9]*/trial.json")}

    def _note(self, fault: str, back: float | None, hands: int, before: dict[str, bytes], words: str) -> None:
        now = self._decided()
        lost = sum(now.get(name) != stored for name, stored in before.items())
        minute = round((time.monotonic() - self._began - (back or 0.0)) / 60, 1)
        row = FaultRow(
            self.campaign, self.environment, self.hours, fault, minute, None if back is None else round(back, 1), hands,
            lost, words, machine(), commit(), today(),
        )  # fmt: skip
        self.faults.append(row)

    def _kill_engine(self) -> tuple[float, int, str]:
        self.until(lambda: self.engine, 300, "a process of the campaign")
        killed = self.engine
        assert killed is not None, "it was there a moment ago"
        os.kill(killed, signal.SIGKILL)
        back = self.until(lambda: self.engine not in (None, killed), 900, "another process of the campaign")
        return back, 0, "resumed as the same run"

    def _kill_worker(self) -> tuple[float, int, str]:
        note = Daemon(self.home / ".prefect", "worker").living()
        if note is None:
            return 0.0, 0, "no worker was running"
        keeper = psutil.Process(note.pid)
        killed = {child.pid for child in keeper.children()}
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        back = self.until(lambda: {child.pid for child in keeper.children()} - killed, 600, "another worker")
        return back, 0, "started again by its keeper"

    def _kill_training(self) -> tuple[float, int, str]:
        """Kill the busiest process of the run under way, which may be one of the certificate."""
        marker = json.loads((self.place / "campaign.json").read_text())["campaign_id"]
        self.until(lambda: orphans.marked(marker), 600, "a run under way")
        processes = {process.pid: _busy(process) for process in orphans.marked(marker)}
        if not processes:
            return 0.0, 0, "the run had just ended"
        before = self._begun_runs()
        os.kill(max(processes, key=lambda pid: processes[pid]), signal.SIGKILL)
        back = self.until(lambda: self._begun_runs() > before, 3600, "the next run")
        crashed = [row for row in self.status()["trials"] if row["verdict"] == "crash"]
        return (
            back,
            0,
            f"crash: {crashed[-1]['reason']}" if crashed else "no trial crashed: it was a run of another kind",
        )

    def _begun_runs(self) -> int:
        with (self.place / "events.jsonl").open() as events:
            return sum(json.loads(line)["event"] == "slot" for line in events)

    def _stop_mlflow(self) -> tuple[float, int, str]:
        assert self.mlflow is not None, "it was started before the campaign"
        os.killpg(self.mlflow.pid, signal.SIGKILL)
        self.mlflow.wait()
        gone = time.monotonic()
        self.until(lambda: time.monotonic() - gone > OUTAGE * self.hours * 3600, self.hours * 3600, "time")
        waiting = self.status()["waiting_to_record"]
        self.start_mlflow()
        back = self.until(self._is_told, 3600, "nothing waits for MLflow", SELDOM)
        if left := self.status()["waiting_to_record"]:
            raise TimeoutError(f"the campaign ended meanwhile, and {left} records wait for `nightshift sync`")
        return back, 0, f"gone for {time.monotonic() - gone - back:.0f} s, {waiting} records waited"

    def _is_told(self) -> bool:
        """Whether nothing waits for MLflow, or nobody sends it any more."""
        found = self.status()
        return not found["waiting_to_record"] or found["state"] == "finished"

    def _fill_disk(self) -> tuple[float, int, str]:
        ballast = self.folder / "disk" / "ballast"
        usage = shutil.disk_usage(self.folder / "disk")
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, usage.free - LEFT))
        try:
            self.until(lambda: self.status()["state"] != "running", 3600, "a campaign that stops", SELDOM)
            found = self.status()
        finally:
            ballast.unlink()
        if found["state"] != "stopped":
            raise TimeoutError(f"the campaign is {found['state']}: {found['reason']}")
        began = time.monotonic()
        nightshift(self.home, "resume", self.campaign, "--detach", "--json")
        self.until(lambda: self.engine, 600, "a process of the campaign")
        return time.monotonic() - began, 1, str(found["reason"])

    def start_mlflow(self) -> None:
        """The server that the campaign tracks to, apart from the home's disk, on the port that it had."""
        self.mlflow_port = self.mlflow_port or free_port(FIRST_PORT)
        store = f"sqlite:///{self.folder}/tracking.db"
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1"]
        with (self.folder / "mlflow.log").open("ab") as log:
            self.mlflow = subprocess.Popen(
                [*command, "--host", HOST, "--port", str(self.mlflow_port)], cwd=self.folder,
                env={**surroundings(self.home), **QUIET}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        wait_for_answer(f"http://{HOST}:{self.mlflow_port}", 900, self.folder / "mlflow.log")

    def end(self) -> None:
        """End everything that the night has started."""
        command = [sys.executable, "-m", "flows.cli", "down", "--now"]
        subprocess.run(command, env=surroundings(self.home), stdout=subprocess.DEVNULL, check=False)
        if self.mlflow is not None and self.mlflow.poll() is None:
            os.killpg(self.mlflow.pid, signal.SIGKILL)
            self.mlflow.wait()


def _busy(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[str]:
    """A small disk at `folder`; why there is none, where there is none, and then it is a folder like any other."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_GB}g", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False) if os.geteuid() == 0 else None
    if done is None or done.returncode:
        yield "only root can mount a small disk" if done is None else f"nothing can be mounted: {done.stderr.strip()}"
        return
    try:
        yield ""
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
