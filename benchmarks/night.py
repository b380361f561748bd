"""One night begun by a schedule, with everything that may break breaking on the way.

    python -m benchmarks.night [--hours 8] [--environment lunar_lander] [--set KEY=VALUE ...] [--rule certify]
        [--proposer tpe] [--parallel 1] [--folder FOLDER]

`nightshift up` in a home of its own, a deployment of the flow `campaign` with a schedule whose next time is two minutes
away, and nobody who starts the campaign. `nightshift up` is called again every minute, as from cron. At fixed shares of
the night these faults come, each with kill -9:

    engine      the process of the campaign
    worker      the worker that starts campaigns; the engine runs on
    training    the program of a run, which is that run's own end: a trial's is a crash with its reason
    mlflow      the MLflow server that the campaign tracks to, gone for a twentieth of the night
    disk        the disk of the home is filled up, so that the campaign stops; needs root, for a disk of its own
    restart     not at a share: this command called again with the same --folder, after everything was killed or the
                machine began anew, goes on with the night

    back        seconds from the fault until its effect was over: until the campaign runs again (engine, restart),
                there is a worker (worker), the next run begins (training), nothing waits for MLflow any more (mlflow),
                and after the disk has room the campaign runs again (disk)
    hands       interventions: commands that somebody had to type. A full disk takes one, `nightshift resume`,
                and so does a restart after that
    lost        trials that had ended before the fault and are not the same after it

At the end there are the trials of the night, what ships, and the same three counts over all. A fault that the machine
does not allow is left out and named. --folder keeps the home, with the campaign's report, the logs, and faults.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.campaigns import (
    WITHOUT_END,
    CommandFailed,
    Rows,
    commit,
    free_port,
    machine,
    nightshift,
    surroundings,
    today,
)  # fmt: skip
from benchmarks.lives import wait_for_answer
from benchmarks.tables import show
from tasks.system import orphans
from tasks.system.daemon import Daemon
from tasks.system.home import stored_login
from tasks.system.retrying import retrying

FAULTS = {"engine": 0.15, "worker": 0.25, "training": 0.35, "mlflow": 0.55, "disk": 0.72}
"""Shares of the night after which they come; the program is killed before the half that a certificate may take."""
OUTAGE = 0.05
"""Share of the night for which MLflow is gone."""
DISK_GB = 4
LEFT = 300 * 2**20
"""Bytes that are left on a full disk: too few for a campaign to go on, enough for a running trial."""
UP_SECONDS = 60.0
POLL_SECONDS = 2.0
SELDOM = 15.0
"""Between two questions that take a second of a core, which the campaign should have."""
SLACK_SECONDS = 1800.0
"""How much longer than its hours a night may take."""
DEPLOYMENT, LEFT_OUT = "night", "left out"
QUIET = {"DO_NOT_TRACK": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


@dataclass(frozen=True)
class FaultRow:
    """One fault of one night: the minute of the campaign, and the seconds until it was back; empty where it was not."""

    night: str
    environment: str
    hours: float
    fault: str
    minute: float
    back: float | None
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
class Night:
    """The home of the night, its servers and its campaign."""

    folder: Path
    options: argparse.Namespace
    campaign: str = ""
    mlflow: subprocess.Popen[bytes] | None = None
    _looked: float = 0.0
    _began: float = 0.0

    @cached_property
    def faults(self) -> Rows[FaultRow]:
        return Rows(self.folder / "faults.csv", FaultRow)

    @cached_property
    def mlflow_port(self) -> int:
        """The same one after a restart, as the campaign tracks to it."""
        kept = self.folder / "mlflow.port"
        if not kept.exists():
            kept.write_text(str(free_port()))
        return int(kept.read_text())

    @property
    def seconds(self) -> float:
        return float(self.options.hours) * 3600

    @property
    def home(self) -> Path:
        return self.folder / "disk" / "home"

    @property
    def place(self) -> Path:
        return self.home / self.campaign

    @property
    def engine(self) -> int | None:
        """The process of the campaign's last life, if it runs."""
        with contextlib.suppress(OSError, ValueError):
            events = map(json.loads, (self.place / "events.jsonl").read_text().splitlines())
            pid = [int(event["pid"]) for event in events if event["event"] == "life"][-1:]
            return pid[0] if pid and psutil.pid_exists(pid[0]) else None
        return None

    @property
    def workers(self) -> set[int]:
        """The processes of Prefect's worker in this home, but for what keeps it."""
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command, home = process.cmdline(), process.environ().get("PREFECT_HOME")
                if home == str(self.home / ".prefect") and command[1:5] == ["-m", "prefect", "worker", "start"]:
                    found.add(process.pid)
        return found

    def status(self) -> dict[str, Any]:
        return nightshift(self.home, "status", self.campaign, "--json")

    def command(self, *words: str) -> None:
        """Run a verb of the command line whose output nobody needs."""
        command = [sys.executable, "-m", "flows.cli", *words]
        done = subprocess.run(command, env=surroundings(self.home), capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"nightshift {' '.join(words)}: {done.stderr.strip()}", file=sys.stderr)

    def until(self, holds: Callable[[], Any], seconds: float, what: str, every: float = POLL_SECONDS) -> float:
        """Wait until it holds, while the timer calls `nightshift up`; the seconds that it took. Raises TimeoutError."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"after {seconds:.0f} s still not: {what}")
            if time.monotonic() - self._looked > UP_SECONDS:
                self.command("up")
                self._looked = time.monotonic()
            time.sleep(every)
        return time.monotonic() - began

    def begin(self) -> None:
        """Have the campaign begun by a schedule, or going on, where it was begun before everything was killed."""
        self.ballast.unlink(missing_ok=True)
        again, before = self._has_begun(), self._decided()
        began = time.monotonic()
        taken_over = again and any(row.hands for row in self.faults.rows) and not self._is_over()
        if not again:
            self._schedule()
        elif taken_over:  # by `nightshift resume` after the full disk: Prefect leaves it
            self.command("up")
            self.command("resume", self.campaign, "--detach")
        self.until(lambda: self.engine or self._is_over(), 900, "a process of the campaign")
        with (self.place / "events.jsonl").open() as events:  # its own time: on a busy machine it is seen late
            first = json.loads(events.readline())
        self._began = time.monotonic() - (time.time() - first["time"])
        if again:
            self._note("restart", time.monotonic() - began, int(taken_over), before, "after everything was killed")

    def _schedule(self) -> None:
        """Deploy the campaign with a schedule, and return once its first trial has begun."""
        self.until(lambda: self.workers, 300, "a worker")
        options = self.options
        due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=2)
        every_day = {"cron": f"{due.minute} {due.hour} * * *", "timezone": "UTC"}
        parameters = {
            "environment": options.environment, "trials": WITHOUT_END, "hours": options.hours, "rule": options.rule,
            "proposer": options.proposer, "parallel": options.parallel,
            "tracking": f"http://127.0.0.1:{self.mlflow_port}",
            "advanced": {"overrides": options.changes},
        }  # fmt: skip
        deployment = {
            "name": DEPLOYMENT, "flow_id": self._ask("/flows/", {"name": "campaign"})["id"],
            "entrypoint": "flows.campaign.campaign", "pull_steps": [], "work_pool_name": "trainers",
            "tags": ["nightshift", "autoresume"], "parameters": parameters,
            "job_variables": {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}, "stream_output": False},
            "schedules": [{"active": True, "schedule": every_day}],
        }  # fmt: skip
        self._ask("/deployments/", deployment)
        self.until(self._has_begun, 900, f"a campaign, scheduled for {due:%H:%M} UTC")

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        """Post to the API of this home's server."""
        server = Daemon(self.home / ".prefect", "server").living()
        assert server is not None, "`nightshift up` has started it"
        auth = httpx.BasicAuth(*stored_login(self.home).split(":", 1))
        post = partial(httpx.post, server.url + path, json=body, auth=auth, timeout=60)
        return retrying(90)(lambda: post().raise_for_status()).json()

    def _has_begun(self) -> bool:
        found = sorted(self.home.glob(f"{DEPLOYMENT}-*/trials/0000"))
        self.campaign = found[0].parents[1].name if found else ""
        return bool(found)

    def run(self, skipped: dict[str, str]) -> None:
        """The faults in their turn, and the end of the campaign."""
        strikes = {
            "engine": self._kill_engine, "worker": self._kill_worker, "training": self._kill_training,
            "mlflow": self._stop_mlflow, "disk": self._fill_disk,
        }  # fmt: skip
        limit = self.seconds + SLACK_SECONDS
        done = {row.fault for row in self.faults.rows}
        for fault, share in FAULTS.items():
            if fault in done:
                continue
            if fault in skipped:
                self._note(fault, None, 0, self._decided(), f"{LEFT_OUT}: {skipped[fault]}")
                continue
            self.until(lambda share=share: time.monotonic() - self._began > share * self.seconds, limit, fault)  # type: ignore[misc]
            before = self._decided()
            try:
                if self.status()["state"] == "finished":
                    raise TimeoutError("the campaign had ended before")
                back, hands, words = strikes[fault]()
            except (TimeoutError, CommandFailed) as failed:
                back, hands, words = None, 0, str(failed)
            self._note(fault, back, hands, before, words)
        self.until(self._is_over, limit, "the end of the campaign", SELDOM)

    def _is_over(self) -> bool:
        return self.status()["state"] not in ("running", "interrupted")

    def _decided(self) -> dict[str, bytes]:
        """What is stored of each finished trial."""
        return {path.parent.name: path.read_bytes() for path in self.place.glob("trials/[0-9]*/trial.json")}

    def _note(self, fault: str, back: float | None, hands: int, before: dict[str, bytes], words: str) -> None:
        now = self._decided()
        lost = sum(now.get(name) != stored for name, stored in before.items())
        minute = round((time.monotonic() - self._began - (back or 0.0)) / 60, 1)
        row = FaultRow(
            self.campaign, self.options.environment, self.options.hours, fault, minute,
            None if back is None else round(back, 1), hands, lost, words, machine(), commit(), today(),
        )  # fmt: skip
        self.faults.add(row)

    def _kill_engine(self) -> tuple[float, int, str]:
        self.until(lambda: self.engine, 300, "a process of the campaign")
        killed = self.engine
        assert killed is not None, "it was there a moment ago"
        os.kill(killed, signal.SIGKILL)
        back = self.until(lambda: self.engine not in (None, killed), 900, "another process of the campaign")
        return back, 0, "resumed as the same run"

    def _kill_worker(self) -> tuple[float, int, str]:
        killed = self.workers
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        back = self.until(lambda: self.workers - killed, 600, "another worker")
        return back, 0, "started again" if killed else "no worker was running"

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
        crashes = [row["reason"] for row in self.status()["trials"] if row["verdict"] == "crash"]
        return back, 0, f"crash: {crashes[-1]}" if crashes else "no trial crashed: it was a run of another kind"

    def _begun_runs(self) -> int:
        with (self.place / "events.jsonl").open() as events:
            return sum(json.loads(line)["event"] == "slot" for line in events)

    def _stop_mlflow(self) -> tuple[float, int, str]:
        assert self.mlflow is not None, "it was started before the campaign"
        os.killpg(self.mlflow.pid, signal.SIGKILL)
        self.mlflow.wait()
        gone = time.monotonic()
        self.until(lambda: time.monotonic() - gone > OUTAGE * self.seconds, self.seconds, "time")
        waiting = self.status()["waiting_to_record"]
        self.start_mlflow()
        back = self.until(self._is_recorded, 3600, "nothing waits for MLflow", SELDOM)
        return back, 0, f"gone for {time.monotonic() - gone - back:.0f} s, {waiting} records waited"

    def _is_recorded(self) -> bool:
        """Whether nothing waits for MLflow. Raises TimeoutError: nobody sends it any more."""
        found = self.status()
        if found["waiting_to_record"] and found["state"] == "finished":
            raise TimeoutError(f"{found['waiting_to_record']} records wait for `nightshift sync`: the campaign ended")
        return not found["waiting_to_record"]

    @property
    def ballast(self) -> Path:
        return self.folder / "disk" / "ballast"

    def _fill_disk(self) -> tuple[float, int, str]:
        usage = shutil.disk_usage(self.folder / "disk")
        with self.ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, usage.free - LEFT))
        try:
            self.until(lambda: self.status()["state"] != "running", 3600, "a campaign that stops", SELDOM)
            found = self.status()
        finally:
            self.ballast.unlink()
        if found["state"] != "stopped":
            raise TimeoutError(f"the campaign is {found['state']}: {found['reason']}")
        began = time.monotonic()
        nightshift(self.home, "resume", self.campaign, "--detach", "--json")
        self.until(lambda: self.engine, 600, "a process of the campaign")
        return time.monotonic() - began, 1, str(found["reason"])

    def start_mlflow(self) -> None:
        """The server that the campaign tracks to, apart from the home's disk, on the port that it had."""
        store = f"sqlite:///{self.folder}/tracking.db"
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1"]
        with (self.folder / "mlflow.log").open("ab") as log:
            self.mlflow = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(self.mlflow_port)], cwd=self.folder,
                env={**surroundings(self.home), **QUIET}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        wait_for_answer(f"http://127.0.0.1:{self.mlflow_port}", 900, self.folder / "mlflow.log")

    def end(self) -> None:
        """End everything that the night has started."""
        self.command("down", "--now")
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
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        yield "only root can mount a small disk"
        return
    image = folder.with_suffix(".img")
    try:
        if not image.exists():
            subprocess.run(["truncate", "-s", f"{DISK_GB}G", str(image)], capture_output=True, check=True)
            subprocess.run(["mkfs.ext4", "-q", str(image)], capture_output=True, check=True)
        if not folder.is_mount():
            subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True, check=True)
    except subprocess.CalledProcessError as failed:
        yield f"nothing can be mounted: {failed.stderr.decode().strip()}"
        return
    try:
        yield ""
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One night with everything breaking.")
    parser.add_argument("--hours", type=float, default=8.0, help="of the campaign (8)")
    parser.add_argument("--environment", default="lunar_lander", help="a bundled one, or a folder")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of environment.toml")
    parser.add_argument("--rule", default="certify", help="as of a campaign")
    parser.add_argument("--proposer", default="tpe", help="as of a campaign")
    parser.add_argument("--parallel", type=int, default=1, help="as of a campaign")
    parser.add_argument("--folder", type=Path, help="to run in, where logs and home stay; a night in it goes on")
    options = parser.parse_args()
    if "/" in options.environment:
        options.environment = str(Path(options.environment).absolute())
    options.changes = {}
    for word in options.set:
        key, _, value = word.partition("=")
        try:
            options.changes[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            options.changes[key] = value
    return options


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the servers are ended, too
    options = parsed()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nightshift-night-")))
        no_disk = stack.enter_context(disk(folder.absolute() / "disk"))
        night = Night(folder.absolute(), options)
        night.home.mkdir(exist_ok=True)
        if options.folder:  # off the disk of the night, once its servers have ended
            stack.callback(shutil.copytree, night.home, folder / "home", symlinks=True, dirs_exist_ok=True)
        stack.callback(night.end)
        try:
            night.start_mlflow()
            night.begin()
            night.run({"disk": no_disk} if no_disk else {})
        except (RuntimeError, TimeoutError) as failed:
            sys.exit(f"{failed}; with --folder the logs stay")
        found = night.status()
        night.command("report", night.campaign)
    numbers = {row["trial"] for row in found["trials"]}
    figures = {
        "campaign": night.campaign,
        "state": found["state"],
        "trials": len(numbers) - 1,
        "missing": len(set(range(len(numbers))) - numbers),
        "lost": sum(row.lost for row in night.faults.rows),
        "interventions": sum(row.hands for row in night.faults.rows),
        "waiting_to_record": found["waiting_to_record"],
        "ships": found["shipped"],
    }
    rows = [(row.fault, row.minute, row.back or "", row.hands, row.lost, row.words) for row in night.faults.rows]
    show(("fault", "minute", "back, s", "hands", "lost", ""), rows)
    show(("", ""), figures.items())
    sys.exit(bool(figures["lost"] or figures["missing"] or any(row.failed for row in night.faults.rows)))


if __name__ == "__main__":
    main()
