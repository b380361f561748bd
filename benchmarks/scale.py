"""How a campaign of many trials at once holds up: 16 slots, 100 trials that sleep, a fifth of them killed.

    python -m benchmarks.scale [--parallel 16] [--trials 100] [--seconds 60] [--killed 0.2] [--seed 0] [--json]
                               [--pool process] [--database postgres]

A real campaign (launch here, TPE, sandboxed programs, no MLflow) at a Prefect server of its own, with `cores = 0`: a
program that sleeps needs no core. Of each trial that is to be killed, the program, its child or its
supervisor gets SIGKILL at a random moment of its sleep.

With --pool process each trial is a flow run of a Prefect work pool with two workers on this machine (launch = gpu-pair,
docker/gpu.prefect.yaml), which take that many at once, all together. The workers keep Prefect's defaults unless a
variable says otherwise, such as PREFECT_WORKER_QUERY_SECONDS=1. --database postgres has Prefect's server on a
PostgreSQL of its own, as docs/work-pools.md advises.

lost          trials without a verdict at the end
doubled       trials that were decided twice, or held a slot more often than they had runs; once more, to be judged,
              where the first run began beside the baseline
left running  processes of trials that are alive at the end; with a pool, its flow runs too
again         with a pool, runs that were launched more than once
seconds to    with a pool, median from when a trial's first run was asked for until it took a slot: until a worker asked
begin         the server, and Python had started
harmed        trials that crashed although nobody killed them, or did not although somebody did
of linear     work that slots did while there was a trial for every slot (from the baseline's verdict until the last
              trial began), as a share of what so many slots can do. A whole trial is its sleep; a killed one is the
              part that it slept
to the end    the same until the last verdict, when slots run empty
engine        core seconds, reads and writes of the campaign's process per trial (/proc/PID/io: every call of read and
              write, pipes and sockets by these calls included; Prefect's and our own), in the first and in the last
              third of the trials: what grows with a campaign shows there
ledger        with --strace: the campaign's process's calls on files of the campaign's folder, per trial
files         files and bytes of the campaign's folder per trial
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import lives, work_pool
from benchmarks.lives import Life, Server
from benchmarks.postgres import INSTALL, binary, databases, postgres
from benchmarks.traffic import traced, traffic
from tasks.sandbox import supervisor
from tasks.store.ledger import Ledger
from tasks.system import orphans
from tasks.system.daemon import free_port
from tasks.trial import Run, Trial

FOREIGN = ("PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_TRACKING_URI")  # ways to somebody's real servers
FIRST_PORT, NAME = 4890, "scale"
LOOK_SECONDS = 0.5
SPARE_SECONDS = 60.0
"""By which the budget is longer than the sleep: a busy machine starts programs late."""
MOST_SHARE = 0.9
"""Of a trial's sleep, until which it is killed."""
COUNTERS = ("syscr", "syscw", "rchar", "wchar", "read_bytes", "write_bytes")
Figures = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """The campaign's process at one moment."""

    decided: int
    cpu: float
    io: dict[str, int]


@dataclass
class Watch:
    """Kills what is to be killed, and notes what the campaign's process does."""

    draw: random.Random
    seconds: float
    doomed: set[int]
    launched: bool
    """Whether trials are flow runs of a pool: their processes are marked as such."""
    killed: dict[int, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    _due: dict[int, float] = field(default_factory=dict)

    def follow(self, life: Life) -> None:
        while not life.wait(LOOK_SECONDS):
            if not Ledger.exists(NAME):
                continue
            ledger = Ledger.open(NAME)
            self._kill(ledger)
            self._sample(ledger, life)

    def _kill(self, ledger: Ledger) -> None:
        alive: dict[int, list[psutil.Process]] = {}
        mark = f"launched/{ledger.campaign.campaign_id}" if self.launched else ledger.campaign.campaign_id
        for process in orphans.marked(mark):
            with suppress(psutil.Error, ValueError, KeyError):
                number = int(process.environ()[orphans.MARKER].removeprefix(f"{mark}/").split("/")[0])
                if number in self.doomed and any(part.endswith("fit.py") for part in process.cmdline()):
                    alive.setdefault(number, []).append(process)
        now = time.monotonic()
        for number, processes in alive.items():
            due = self._due.setdefault(number, now + self.draw.uniform(0.0, MOST_SHARE * self.seconds))
            if now >= due and number not in self.killed:
                self._strike(number, processes)

    def _strike(self, number: int, processes: list[psutil.Process]) -> None:
        by_kind: dict[str, psutil.Process] = {}
        with suppress(psutil.Error):
            for process in processes:
                command = process.cmdline()
                if Path(command[0]).name != "bwrap":
                    by_kind["worker" if "--worker" in command else "program"] = process
                for other in process.parents():
                    if supervisor.__file__ in other.cmdline():
                        by_kind["supervisor"] = other
            kind = self.draw.choice(sorted(by_kind))
            by_kind[kind].send_signal(signal.SIGKILL)
            self.killed[number] = kind

    def _sample(self, ledger: Ledger, life: Life) -> None:
        decided = len(list(ledger.trials.glob("[0-9][0-9][0-9][0-9]/trial.json")))
        if self.samples and self.samples[-1].decided == decided:
            return
        with suppress(OSError, psutil.Error):
            lines = Path(f"/proc/{life.pid}/io").read_text().splitlines()
            counters = {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}
            times = psutil.Process(life.pid).cpu_times()
            self.samples.append(Sample(decided, times.user + times.system, {key: counters[key] for key in COUNTERS}))


def measure(options: argparse.Namespace, folder: Path, server: Server) -> Figures:
    draw = random.Random(options.seed)
    spec = lives.write_problem(folder / "problem", seconds=options.seconds, proposer="tpe", seed=options.seed)
    environment = spec.with_name("environment.toml")
    environment.write_text(f"cores = 0\n{environment.read_text()}")
    doomed = set(draw.sample(range(1, options.trials + 1), round(options.killed * options.trials)))
    watch = Watch(draw, options.seconds, doomed, launched=bool(options.pool))
    command = [
        "run", str(spec), "--name", NAME, "--trials", str(options.trials), "--parallel", str(options.parallel),
        "--cancel", "none", "--tracking", "off", "--server", server.url,
        "--set", f"budget_seconds={options.seconds + SPARE_SECONDS:g}",
        *(["--launch", work_pool.LAUNCH] if options.pool else []),
    ]  # fmt: skip
    with ExitStack() as stack:
        workers = stack.enter_context(work_pool.working(folder, options.parallel)) if options.pool else None
        life = lives.begin(command, folder / "scale.log")
        stack.callback(life.kill, signal.SIGKILL)  # where this process is told to end
        if options.strace:
            stack.enter_context(traced(life.pid, folder / "strace.txt"))
        watch.follow(life)
        if life.status:
            raise RuntimeError(f"the campaign ended with {life.status}: {(folder / 'scale.log').read_text()[-2000:]}")
        found = figures(options, Ledger.open(NAME), watch, workers.left_running() if workers else 0)
    if options.strace:
        counts = traffic(folder / "strace.txt", life.pid, folder / "home" / NAME)
        each = {name: round(count / (options.trials + 1), 1) for name, count in sorted(counts.items())}
        return {"ledger_per_trial": each, **found}
    return found


def figures(options: argparse.Namespace, ledger: Ledger, watch: Watch, flow_runs: int) -> Figures:
    history, seconds = ledger.history(), options.seconds
    numbers, events = {trial.number for trial in history}, list(ledger.events())
    decided = Counter(event["trial"] for event in events if event["event"] == "settled")
    slots = [event for event in events if event["event"] == "slot"]
    held = Counter(event["number"] for event in slots)
    launches = [event for event in events if event["event"] == "launch"]
    again = {event["run"] for event in launches if event["what"] == "died"}
    asked = {event["trial"]: event["time"] for event in reversed(launches) if event["what"] == "asked"}
    taken = {event["number"]: event["time"] for event in reversed(slots)}
    waits = [taken[number] - time for number, time in asked.items()]
    crashed = {trial.number for trial in history if trial.verdict.kind == "crash"}
    runs = {trial.number: trial.runs[0] for trial in history}
    begun = next(event["time"] for event in events if event["event"] == "settled" and event["trial"] == 0)
    held -= Counter({event["number"] for event in slots if event["number"] and event["time"] < begun})
    last = max(run.started for number, run in runs.items() if number)
    end = max(event["time"] for event in events if event["event"] == "settled")
    works = [_work(run, seconds, number in watch.killed) for number, run in runs.items() if number]

    def share(until: float) -> float:
        done = sum(max(min(stop, until) - max(start, begun), 0.0) for start, stop in works)
        return round(done / (options.parallel * (until - begun)), 4)

    files = [path for path in ledger.path.rglob("*") if path.is_file() and not path.is_symlink()]
    return {
        "parallel": options.parallel, "trials": len(numbers) - 1, "killed": len(watch.killed),
        "lost": len(set(range(options.trials + 1)) - numbers),
        "doubled": sum(count > 1 for count in decided.values())
        + sum(count > len(_trial(history, number).runs) for number, count in held.items()),
        "left_running": lives.left_over(ledger) + flow_runs, "again": len(again),
        "seconds_to_begin": round(median(waits), 1) if waits else 0.0, "harmed": len(crashed ^ set(watch.killed)),
        "of_linear": share(last), "to_the_end": share(end), "minutes": round((end - begun) / 60, 2),
        "engine_first_third": _per_trial(watch.samples, 0), "engine_last_third": _per_trial(watch.samples, 2),
        "files_per_trial": round(len(files) / len(numbers), 1),
        "kib_per_trial": round(sum(path.stat().st_size for path in files) / len(numbers) / 1024, 1),
    }  # fmt: skip


def _work(run: Run, seconds: float, was_killed: bool) -> tuple[float, float]:
    """When a program slept: a whole sleep at the end of its run, or until it was killed."""
    end = run.started + run.wall_seconds
    return (run.started if was_killed else max(end - seconds, run.started)), end


def _trial(history: tuple[Trial, ...], number: int) -> Trial:
    return next(trial for trial in history if trial.number == number)


def _per_trial(samples: list[Sample], third: int) -> dict[str, float]:
    """What the campaign's process did for each trial of one third of the campaign; empty for too few trials."""
    after = [sample for sample in samples if sample.decided > 0]
    if len(after) < 4:
        return {}
    first, last = after[len(after) * third // 3], after[min(len(after) * (third + 1) // 3, len(after) - 1)]
    trials = max(last.decided - first.decided, 1)
    done = {key: (last.io[key] - first.io[key]) / trials for key in COUNTERS}
    return {
        "cpu_seconds": round((last.cpu - first.cpu) / trials, 3),
        "reads": round(done["syscr"], 1), "writes": round(done["syscw"], 1),
        "read_kib": round(done["rchar"] / 1024, 1), "written_kib": round(done["wchar"] / 1024, 1),
        "disk_read_kib": round(done["read_bytes"] / 1024, 1), "disk_written_kib": round(done["write_bytes"] / 1024, 1),
    }  # fmt: skip


@contextmanager
def settled(options: argparse.Namespace, folder: Path) -> Iterator[Server]:
    """A home of its own in `folder`, and a server."""
    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ["NIGHTSHIFT_HOME"] = str(folder / "home")
    with ExitStack() as stack:
        if options.database == "postgres":
            folder.chmod(0o755)  # for PostgreSQL's own user
            base = stack.enter_context(postgres(folder / "postgres"))
            os.environ["PREFECT_API_DATABASE_CONNECTION_URL"] = stack.enter_context(databases(base))[0]
        server = Server.start(folder / "server", free_port(FIRST_PORT))
        stack.callback(server.kill)
        server.wait()
        os.environ["PREFECT_API_URL"] = server.url
        yield server


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the server is ended, too
    # What a shell starts in its background is deaf to SIGINT, and so would be workers, which end themselves by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description="A campaign of many trials at once, some of which are killed.")
    parser.add_argument("--parallel", type=int, default=16, help="trials at once (16)")
    parser.add_argument("--trials", type=int, default=100, help="the baseline not counted (100)")
    parser.add_argument("--seconds", type=float, default=60.0, help="that each of them sleeps (60)")
    parser.add_argument("--killed", type=float, default=0.2, help="share of the trials (0.2)")
    parser.add_argument("--seed", type=int, default=0, help="of the kills and of the campaign (0)")
    parser.add_argument("--pool", choices=("process",), help="train in a work pool with workers of this type")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite", help="of the server (sqlite)")
    parser.add_argument("--strace", action="store_true", help="count the calls on the campaign's folder; slow")
    parser.add_argument("--keep", type=Path, help="a new folder to run in, which stays")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.database == "postgres" and binary("initdb") is None:
        parser.error(f"PostgreSQL is not installed: {INSTALL}")
    with tempfile.TemporaryDirectory(prefix="nightshift-scale-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with settled(options, folder) as server:
            found = measure(options, folder, server)
    print(json.dumps(found, indent=2)) if options.json else show(found)
    sys.exit(1 if found["lost"] or found["doubled"] or found["left_running"] or found["harmed"] else None)


def show(found: Figures) -> None:
    table = Table("figure", "")
    for key, value in found.items():
        words = ", ".join(f"{name} {figure:g}" for name, figure in value.items()) if isinstance(value, dict) else value
        table.add_row(key.replace("_", " "), str(words))
    Console(highlight=False, width=140).print(table)


if __name__ == "__main__":
    main()
