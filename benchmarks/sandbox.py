"""What the sandbox costs at the start of a program, compared with `subprocess`.

    python -m benchmarks.sandbox [--rounds 40] [--json]

The programs do nothing, so that all of their time is the start's and the end's. `plain` is `subprocess.Popen` and
`wait`; the others are `tasks.sandbox.program.Program` at every level of isolation that works here, with supervisor,
control group
and log. Each round runs all of them once in an order of its own, so that other load falls on all alike; `more` is a
level's time less that of the plain start of the same round. All times begin with the start of the program:

training    until the last of its processes is gone, and nothing of it is left
running     until the engine knows that it runs
answer      until the first byte comes back through its pipes, as under judgement
judgement   the same, and the engine has then ended it

The process that starts them is as large as an engine: Prefect, MLflow with its store, Optuna and our own flow are
loaded first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.trial_overhead import Figures, shown, spread
from environments.limits import Limits
from tasks.evaluate import PipedCandidate
from tasks.sandbox import cgroup
from tasks.sandbox.confinement import Level, VisiblePaths, give
from tasks.sandbox.isolation import findings
from tasks.sandbox.program import Program, child_environment
from tasks.train import POLL_SECONDS

LOADED = ("prefect", "mlflow", "mlflow.store.tracking.sqlalchemy_store", "optuna", "flows.campaign")
ECHO = "import os; os.write(1, os.read(0, 1)); os.read(0, 1)"
TRAINED = {"python": ["python", "-I", "-S", "-c", "pass"], "true": ["/bin/true"]}
"""Programs that end at once: an interpreter without its site-packages, and next to nothing at all."""
JUDGED = {"python": ["python", "-I", "-S", "-c", ECHO], "cat": ["/bin/cat"]}
"""Programs that send back what they are sent, and wait for more."""
ANSWER_SECONDS = 20.0
PLAIN = "plain"
Lap = dict[str, float]
"""Seconds of one start, by what was measured of it."""


class Place:
    """Where a trial's program runs and writes, and how it is started."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.log = folder / "workspace", folder / "log.txt"
        self.workspace.mkdir()
        self._folder = folder

    def plain(self, command: Sequence[str], pipe: int | None = None) -> subprocess.Popen[bytes]:
        """Nothing around it but the environment that the sandbox gives too."""
        line = [sys.executable if command[0] == "python" else command[0], *command[1:]]
        environment = child_environment("/tmp", "benchmark")
        return subprocess.Popen(line, cwd=self.workspace, env=environment, stdin=pipe, stdout=pipe, bufsize=0)

    def confined(self, level: Level, command: Sequence[str], pipes: bool) -> Program:
        return Program(
            command, cwd=self.workspace, log=self.log, marker="benchmark", level=level,
            view=VisiblePaths((self.workspace,), (self._out(level),)), limits=Limits(), pipes=pipes,
        )  # fmt: skip

    def _out(self, level: Level) -> Path:
        """A folder that the program of that level may write to."""
        out = self._folder / f"out-{level}"
        if not out.exists():
            out.mkdir()
            give(out, level)
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description="What the sandbox costs at the start of a program.")
    parser.add_argument("--rounds", type=int, default=40, help="starts of each program at each level (40)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.rounds < 5:
        parser.error(f"--rounds must be at least 5, to have a spread, got {options.rounds}")
    figures = measure(options.rounds)
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def measure(rounds: int) -> Figures:
    """Milliseconds by what was measured and level: the median and the 90th percentile."""
    for name in LOADED:
        importlib.import_module(name)
    levels = [finding.level for finding in findings() if finding.works]
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as folder:
        laps = run_rounds(rounds, starts(Place(Path(folder).resolve()), levels))
    rows: Figures = {}
    for kind in laps[0][levels[0]]:
        timed = [name for name in laps[0] if kind in laps[0][name]]
        rows[kind] = {name: spread([lap[name][kind] for lap in laps]) for name in timed}
        if PLAIN in timed:
            more = {name: spread([lap[name][kind] - lap[PLAIN][kind] for lap in laps]) for name in levels}
            rows[f"{kind}/more"] = more
    return {"about": about(rounds), "columns": [PLAIN, *levels], "rows": rows}


def about(rounds: int) -> str:
    groups, size = cgroup.find(), psutil.Process().memory_info().rss / 2**20
    grouped = f"cgroups v{groups.version}" if groups else "no cgroups"
    when = f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}"
    return f"{rounds} starts each by a process of {size:.0f} MiB, {grouped}, {when}"


def starts(place: Place, levels: Sequence[Level]) -> dict[str, list[Callable[[], Lap]]]:
    """What is measured in each column."""
    columns: dict[str, list[Callable[[], Lap]]] = {PLAIN: []}
    columns[PLAIN] += [partial(plain_training, place, name) for name in TRAINED]
    columns[PLAIN] += [partial(plain_judgement, place, name) for name in JUDGED]
    for level in levels:
        columns[level] = [partial(training, place, level, name) for name in TRAINED]
        columns[level] += [partial(judgement, place, level, name) for name in JUDGED]
    return columns


def run_rounds(rounds: int, columns: dict[str, list[Callable[[], Lap]]]) -> list[dict[str, Lap]]:
    """Everything once in each round; the first one, which loads files and libraries, counts nowhere."""
    turns = list(product(columns, range(len(columns[PLAIN]))))
    shuffle, laps = random.Random(0).shuffle, []
    for _ in range(rounds + 1):
        lap: dict[str, Lap] = {name: {} for name in columns}
        for name, number in turns:
            lap[name] |= columns[name][number]()
        laps.append({name: dict(sorted(seconds.items(), reverse=True)) for name, seconds in lap.items()})
        shuffle(turns)
    return laps[1:]


def plain_training(place: Place, name: str) -> Lap:
    began = time.perf_counter()
    status = place.plain(TRAINED[name]).wait()
    seconds = time.perf_counter() - began
    assert status == 0, f"{TRAINED[name]} ended with {status}"
    return {f"training_ms/{name}": seconds}


def training(place: Place, level: Level, name: str) -> Lap:
    """The steps of `tasks.train`, for a program that ends by itself."""
    began = time.perf_counter()
    with place.confined(level, TRAINED[name], pipes=False) as program:
        running = time.perf_counter() - began
        while (status := program.poll(POLL_SECONDS)) is None:
            pass
        left = program.left_over()
    seconds = time.perf_counter() - began
    assert status == 0 and not left, f"{TRAINED[name]} at {level} ended with {status}, and left {left}"
    return {f"training_ms/{name}": seconds, f"running_ms/{name}": running}


def plain_judgement(place: Place, name: str) -> Lap:
    began = time.perf_counter()
    with place.plain(JUDGED[name], subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(b"?")
        answer = program.stdout.read(1)
        answered = time.perf_counter() - began
        program.kill()
        program.wait()
    seconds = time.perf_counter() - began
    assert answer == b"?", f"{JUDGED[name]} answered {answer!r}"
    return {f"answer_ms/{name}": answered, f"judgement_ms/{name}": seconds}


def judgement(place: Place, level: Level, name: str) -> Lap:
    """The steps of `tasks.evaluate`, for a judge that asks once."""
    began = time.perf_counter()
    with place.confined(level, JUDGED[name], pipes=True) as program:
        candidate = PipedCandidate(program, place.workspace / "result.json")
        candidate.send(b"?", ANSWER_SECONDS)
        answer = candidate.receive(1, ANSWER_SECONDS)
        answered = time.perf_counter() - began
    seconds = time.perf_counter() - began
    assert answer == b"?", f"{JUDGED[name]} at {level} answered {answer!r}"
    return {f"answer_ms/{name}": answered, f"judgement_ms/{name}": seconds}


def show(figures: Figures) -> None:
    table = Table("median (90th percentile)", *figures["columns"], title=figures["about"])
    for kind, row in figures["rows"].items():
        table.add_row(kind, *(shown(row[name]) if name in row else "" for name in figures["columns"]))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
