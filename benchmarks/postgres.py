"""How many empty trials a second Prefect and MLflow take from many campaigns at once, on PostgreSQL and on SQLite.

    python -m benchmarks.postgres [--trials 2000] [--workers 8] [--on postgres sqlite] [--database URL] [--json]

Every worker is a process with a campaign of its own, as many nights on one server are; together they run `--trials`
trials. A trial is two short processes that do nothing (benchmarks/trial_overhead.py), so what is measured is the
engine with its two databases: Prefect's server on one, MLflow on another of the same PostgreSQL. That is started in a
temporary folder on loopback, with its defaults; `--database` names a running one instead, whose user may create
databases. All tables are there before the campaigns begin, which they do at once.

Errors are counted in the logs of both servers, in the campaigns' events and in their output: lines with a deadlock, a
lock, a serialization failure or a refused connection. Left out is PostgreSQL's line for a point of a metric that is
sent again: MLflow tries, and leaves out what is there. `recorded` is what is in MLflow when the last campaign ends.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.trial_overhead import FILES, FOREIGN

INSTALL = "apt-get install postgresql"
ERRORS = re.compile(
    r"deadlock|database is locked|could not (serialize|obtain lock)|lock timeout|too many clients|connection refused"
    r"|\bERROR: |OperationalError|IntegrityError|UniqueViolation",
    re.IGNORECASE,
)
SENT_AGAIN = "metric_pk"
WAIT_SECONDS = 6 * 3600.0


@dataclass(frozen=True)
class Figures:
    """Of one database system."""

    on: str
    trials: int
    seconds: float
    """From the start of the first campaign to the end of the last."""
    per_minute: float
    """Trials, from when every campaign has its baseline."""
    recorded: int
    """Runs of trials in MLflow, baselines included."""
    failed: dict[str, str]
    """The campaigns that did not finish, and what each said last."""
    errors: dict[str, int]
    """Lines about locks and faults, by where they were found."""
    examples: list[str]
    """Some of these lines."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput of empty trials on PostgreSQL and on SQLite.")
    parser.add_argument("--trials", type=int, default=2000, help="trials of all campaigns together (2000)")
    parser.add_argument("--workers", type=int, default=8, help="campaigns at once (8)")
    parser.add_argument("--on", nargs="+", choices=("postgres", "sqlite"), default=["postgres", "sqlite"])
    parser.add_argument("--database", help="a running PostgreSQL: postgresql://user:password@host:port/name")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.trials < options.workers:
        parser.error(f"--trials must be at least --workers ({options.workers}), got {options.trials}")
    if "postgres" in options.on and not options.database and binary("initdb") is None:
        parser.error(f"PostgreSQL is not installed: {INSTALL}, name one with --database, or --on sqlite")
    if "postgres" in options.on and find_spec("psycopg") is None:
        parser.error("psycopg is not installed: pip install 'psycopg[binary]>=3.2,<4', the extra `postgres`")
    for name in FOREIGN:
        os.environ.pop(name, None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing that was started is left
    figures = [measured(on, options.trials, options.workers, options.database) for on in options.on]
    print(json.dumps([asdict(one) for one in figures], indent=2)) if options.json else show(figures)


def measured(on: str, trials: int, workers: int, database: str | None) -> Figures:
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as folder, ExitStack() as stack:
        root = Path(folder)
        root.chmod(0o755)  # for PostgreSQL's own user
        prefect_db = mlflow_db = None
        if on == "postgres":
            base = database or stack.enter_context(postgres(root / "postgres"))
            prefect_db, mlflow_db = stack.enter_context(databases(base))
        home, problem = root / "home", root / "empty"
        problem.mkdir()
        for name, content in FILES.items():
            is_environment = name == "environment.toml"  # its programs do nothing, and need no core
            (problem / name).write_text("cores = 0\n" + content if is_environment else content)
        return campaigns(on, home, problem, trials, workers, prefect_db, mlflow_db)


def campaigns(
    on: str, home: Path, problem: Path, trials: int, workers: int, prefect_db: str | None, mlflow_db: str | None
) -> Figures:
    """Run all campaigns at once at a Prefect server of their own; their figures."""
    from flows.server import server_process
    from tasks.system.login import stored_login

    os.environ["NIGHTSHIFT_HOME"] = str(home)
    server_process.settle_in(home)
    # Not in the home, where a campaign that finds it too busy to answer would start another, on SQLite.
    (place := home.parent / "server").mkdir()
    (place / ".prefect").mkdir(mode=0o700)
    if prefect_db:
        os.environ[server_process.DATABASE[0]] = prefect_db
    url = server_process.start(place / ".prefect").url
    os.environ["PREFECT_API_AUTH_STRING"] = stored_login(place)
    started: list[subprocess.Popen[bytes]] = []
    try:
        each = [trials // workers + (number < trials % workers) for number in range(workers)]
        to = mlflow_db or f"sqlite:///{home}/mlflow.db"
        records(to, home)  # makes the tables
        began = time.perf_counter()
        for number, count in enumerate(each):
            started.append(campaign(problem, home, number, count, url, to))
        codes = [process.wait(WAIT_SECONDS) for process in started]
        seconds = time.perf_counter() - began
    finally:
        for process in started:
            process.terminate()
            process.wait()
        server_process.daemon(place / ".prefect").end()
    found, examples = faults(home)
    recorded = records(to, home)
    logs = [home / f"worker-{number}.log" for number, code in enumerate(codes) if code]
    failed = {log.stem: log.read_text(errors="replace").strip()[-600:] for log in logs}
    return Figures(on, trials, round(seconds, 1), round(per_minute(home), 1), recorded, failed, found, examples)


def per_minute(home: Path) -> float:
    """Trials per minute once every campaign has its baseline; starting so many processes is another matter."""
    times = []
    for path in home.glob("*/events.jsonl"):
        events = map(json.loads, path.read_text().splitlines())
        times.append([event["time"] for event in events if event["event"] == "settled"])
    begin = max((settled[0] for settled in times if settled), default=0.0)
    after = [moment for settled in times for moment in settled if moment > begin]
    return 60 * len(after) / (max(after) - begin) if after else 0.0


def campaign(problem: Path, home: Path, number: int, trials: int, url: str, to: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "flows.cli", "run", str(problem), "--name", f"worker-{number}", "--trials", str(trials),
        "--rule", "greedy", "--seed", str(number), "--hours", "100", "--tracking", to, "--trust",
    ]  # fmt: skip
    with (home / f"worker-{number}.log").open("wb") as log:
        return subprocess.Popen(
            command, env=os.environ | {"PREFECT_API_URL": url}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def faults(home: Path) -> tuple[dict[str, int], list[str]]:
    """How many lines tell of a lock or a fault, by file, and some that differ in more than numbers."""
    logs = [*home.glob("*.log"), *home.parent.glob("server/.prefect/*.log"), *home.parent.glob("postgres/*.log")]
    found, examples = {}, {}
    for path in [*logs, *home.glob("*/events.jsonl")]:
        lines = [line for line in path.read_text(errors="replace").splitlines() if ERRORS.search(line)]
        lines = [line for line in lines if SENT_AGAIN not in line]
        if lines:
            found[str(path.relative_to(home.parent))] = len(lines)
            examples |= {re.sub(r"\d+", "N", line): line[:300] for line in reversed(lines)}
    return found, [*examples.values()][:8]


def records(to: str, home: Path) -> int:
    """How many trials are in MLflow."""
    from tasks.tracking.connection import Store

    with Store(to, home).client() as client:
        ids = [one.experiment_id for one in client.search_experiments()]
        count, token = 0, None
        while True:
            page = client.search_runs(ids, "tags.kind = 'trial'", max_results=1000, page_token=token)
            count, token = count + len(page), page.token
            if not token:
                return count


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL on loopback with its data in that folder, run as an ordinary user; its address."""
    is_root = os.geteuid() == 0
    who = "nobody" if is_root else pwd.getpwuid(os.geteuid()).pw_name
    folder.mkdir()
    os.chown(folder, pwd.getpwnam(who).pw_uid, -1)
    as_who: dict[str, Any] = {"user": who, "group": pwd.getpwnam(who).pw_gid, "extra_groups": []} if is_root else {}
    data, port = folder / "data", free_port()
    quiet: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    initdb = [str(binary("initdb")), "-D", str(data), "-U", "nightshift", "-A", "trust", "-E", "UTF8"]
    subprocess.run(initdb, check=True, **quiet, **as_who)
    command = [str(binary("postgres")), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", str(folder)]
    with (folder / "postgres.log").open("wb") as log, subprocess.Popen(
        command, stderr=log, **quiet, **as_who
    ) as process:  # fmt: skip
        try:
            ready = [str(binary("pg_isready")), "-q", "-U", "nightshift", "-h", "127.0.0.1", "-p", str(port)]
            deadline = time.monotonic() + 60
            while subprocess.run(ready).returncode != 0:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start: {(folder / 'postgres.log').read_text()[-1000:]}")
                time.sleep(0.1)
            yield f"postgresql://nightshift@127.0.0.1:{port}/postgres"
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown, whatever is still connected


@contextmanager
def databases(base: str) -> Iterator[tuple[str, str]]:
    """Two new databases of a server, for Prefect and for MLflow, as each wants to be told; dropped at the end."""
    names = [f"nightshift_{kind}_{uuid.uuid4().hex[:8]}" for kind in ("prefect", "mlflow")]
    root = base.rpartition("/")[0].partition("://")[2]

    def say(*statements: str) -> None:
        for statement in statements:
            subprocess.run([str(binary("psql")), "-q", "-d", base, "-c", statement], check=True)

    say(*(f'create database "{name}"' for name in names))
    try:
        yield f"postgresql+asyncpg://{root}/{names[0]}", f"postgresql+psycopg://{root}/{names[1]}"
    finally:
        say(*(f'drop database "{name}" with (force)' for name in names))


def binary(name: str) -> str | None:
    """A program of PostgreSQL's; Debian keeps those of a server outside of PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or next((str(place / name) for place in places if (place / name).exists()), None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def show(figures: Sequence[Figures]) -> None:
    about = f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}"
    table = Table("", *(one.on for one in figures), title=about)
    for key in ("trials", "seconds", "per_minute", "recorded"):
        table.add_row(key.replace("_", " "), *(str(getattr(one, key)) for one in figures))
    table.add_row("campaigns that failed", *(str(len(one.failed)) for one in figures))
    table.add_row("lines of errors", *(str(sum(one.errors.values())) for one in figures))
    Console(highlight=False).print(table)
    for one in figures:
        for name, words in one.failed.items():
            print(f"{one.on}: {name} failed: {words}")
        for place, count in one.errors.items():
            print(f"{one.on}: {count} in {place}")
        for line in one.examples:
            print(f"{one.on}, such as: {line}")


if __name__ == "__main__":
    main()
