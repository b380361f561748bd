"""What the engine costs per trial, over the time that the trial's own processes need.

    python -m benchmarks.trial_overhead [--trials 200] [--json]

Real campaigns run in this process, serial, with a Prefect server of their own that is already warm: one that MLflow
records (sqlite), one with `--tracking off`. Their program writes an empty checkpoint and nothing else, and is judged
by a command that writes `{"score": 0}`; so a trial is two short processes, and all the rest of it is the engine's.

After each trial the same two command lines run once more, bare: `subprocess.run`, one after the other, with the same
interpreter and environment variables. What the trial took beyond that, from the end of one bare pair to the end of
the trial's last task, is its overhead. The pairs lie between the trials so that other load on the machine falls on
both; they also ran before the campaigns, while nothing else did. The baseline's trial, and with it the start of the
flow, counts nowhere.

Steps are timed from the completion of one task to the completion of the next; `train` and `evaluate` contain the
programs. Memory (resident) and CPU time are this process's, which runs the flow, the client's side of Prefect and
MLflow. Everything is written to a temporary home and removed afterwards, the server is stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from flows import server
from flows.watch import Watch
from tasks import sandbox

FOREIGN = ("PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_TRACKING_URI")
"""Settings that would lead to somebody's real servers."""
WARM_UP_TRIALS = 5
BARE_BEFORE = 20
HELP_RUNS = 7

TRAIN = 'import sys\nopen(sys.argv[1] + "/checkpoint", "w").close()\n'
EVALUATE = 'import sys\nwith open(sys.argv[1], "w") as file:\n    file.write(\'{"score": 0}\')\n'
ENVIRONMENT = """\
metric = "score"
direction = "maximize"
trainer = "command"
program = ["train.py"]
train_cmd = "python train.py {out}"
budget_seconds = 10
judge = "command"

[command]
eval_cmd = "python evaluate.py {result}"

[space.x]
type = "float"
low = 0.0
high = 1.0
default = 0.5
"""


@dataclass(frozen=True)
class Lap:
    """One trial, and the bare pair after it; seconds."""

    wall: float
    bare: float
    cpu: float
    """Processor time of this process, its children not counted."""
    memory: int
    """Resident set of this process after the trial, in bytes."""
    steps: dict[str, float]

    @property
    def overhead(self) -> float:
        return self.wall - self.bare


@dataclass
class Stopwatch:
    """A completion hook of the campaign's tasks; a lap ends with `record`."""

    bare: Callable[[], float]
    laps: list[Lap] = field(default_factory=list)
    _steps: dict[str, float] = field(default_factory=dict)
    _since: float = 0.0
    _cpu: float = 0.0

    def reset(self) -> None:
        self.laps, self._steps = [], {}

    def completed(self, task: Any, task_run: object, state: object) -> None:
        now = time.perf_counter()
        self._steps[task.name] = now - self._since
        if task.name == "record":
            cpu, memory = time.process_time() - self._cpu, psutil.Process().memory_info().rss
            self.laps.append(Lap(sum(self._steps.values()), self.bare(), cpu, memory, self._steps))
            self._steps, self._cpu = {}, time.process_time()
        self._since = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description="What the engine costs per trial.")
    parser.add_argument(
        "--trials", type=int, default=200, help="empty trials of each campaign, at least 4 (200)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.trials < 4:
        parser.error(f"--trials must be at least 4, to compare quarters, got {options.trials}")
    figures = measure(options.trials)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)


def measure(trials: int) -> dict[str, Any]:
    """Every figure; times in milliseconds, memory in MiB."""
    started = time.strftime("%Y-%m-%d %H:%M")
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as folder:
        home, problem = Path(folder, "home"), write_environment(Path(folder, "empty"))
        for name in FOREIGN:
            os.environ.pop(name, None)
        os.environ["NIGHTSHIFT_HOME"] = str(home)
        start_up = compare_help()
        server.settle_in(home)
        bare = partial(run_bare, problem, sandbox.child_environment(home, "bare"))
        quiet = [bare() for _ in range(BARE_BEFORE)]
        with server.prefect_server(None, home) as url:
            stopwatch = attach(Stopwatch(bare))
            run = partial(run_campaign, stopwatch, url, problem)
            run("warm-up", WARM_UP_TRIALS, None)
            campaigns = {"MLflow (sqlite)": run("mlflow", trials, None), "off": run("off", trials, "off")}
        return {
            "date": started,
            "machine": f"{os.cpu_count()} cores, Python {sys.version.split()[0]}",
            "load": os.getloadavg()[0],
            "trials": trials,
            "bare_pair_before_ms": milliseconds(quiet),
            "tracking": {name: summary(laps) for name, laps in campaigns.items()},
            "start_up": start_up,
        }


def write_environment(folder: Path) -> Path:
    folder.mkdir()
    for name, content in (("environment.toml", ENVIRONMENT), ("train.py", TRAIN), ("evaluate.py", EVALUATE)):
        (folder / name).write_text(content)
    return folder


def run_bare(problem: Path, environment: dict[str, str]) -> float:
    """Seconds that the two programs of an empty trial take when nothing watches them."""
    started = time.perf_counter()
    for command in (["python", "train.py", "."], ["python", "evaluate.py", "result.json"]):
        subprocess.run(command, cwd=problem, env=environment, check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - started


def attach(stopwatch: Stopwatch) -> Stopwatch:
    from tasks.decide import decide
    from tasks.evaluate import evaluate
    from tasks.propose import propose
    from tasks.record import record
    from tasks.train import train

    for task in (propose, train, evaluate, decide, record):
        task.on_completion(stopwatch.completed)
    return stopwatch


def run_campaign(
    stopwatch: Stopwatch, url: str, problem: Path, name: str, trials: int, tracking: str | None
) -> list[Lap]:
    """Run a campaign as the command does; a lap for each of its trials but the baseline."""
    from flows.campaign import campaign

    stopwatch.reset()
    with Watch(name, Console(quiet=True)):
        ending = campaign(
            str(problem), name=name, trials=trials, tracking=tracking, seed=0, return_state=True
        )
    server.drain()
    server.wait_for_rows(url, str(ending.state_details.flow_run_id))
    if not ending.is_completed() or len(stopwatch.laps) != trials + 1:
        raise RuntimeError(f"{name}: {len(stopwatch.laps)} of {trials + 1} trials timed; {ending!r}")
    return stopwatch.laps[1:]


def summary(laps: Sequence[Lap]) -> dict[str, Any]:
    """The figures of one campaign."""
    overheads = [lap.overhead for lap in laps]
    quarter = len(laps) // 4
    memory = [lap.memory / 2**20 for lap in laps]
    return {
        "trial_ms": milliseconds([lap.wall for lap in laps]),
        "bare_pair_ms": milliseconds([lap.bare for lap in laps]),
        "overhead_ms": milliseconds(overheads),
        "overhead_first_quarter_ms": milliseconds(overheads[:quarter]),
        "overhead_last_quarter_ms": milliseconds(overheads[-quarter:]),
        "engine_cpu_ms": milliseconds([lap.cpu for lap in laps]),
        "step_ms": {step: milliseconds([lap.steps[step] for lap in laps]) for step in laps[0].steps},
        "memory_first_mib": memory[0],
        "memory_last_mib": memory[-1],
        "memory_per_trial_kib": (memory[-1] - memory[0]) * 1024 / (len(laps) - 1),
    }


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    ninth = statistics.quantiles(seconds, n=10, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    return {"median": statistics.median(seconds) * 1000, "p90": ninth * 1000}


def compare_help() -> dict[str, dict[str, float]]:
    """`nightshift --help` and an interpreter that does nothing, in turn."""
    commands = {"help_ms": ["-m", "flows.cli", "--help"], "python_ms": ["-c", "pass"]}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(HELP_RUNS):
        for name, arguments in commands.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            taken[name].append(time.perf_counter() - started)
    return {name: milliseconds(times) for name, times in taken.items()}


def show(figures: dict[str, Any]) -> None:
    """Print the figures as a table: a column for each campaign."""
    campaigns = figures["tracking"]
    title = f"{figures['trials']} empty trials, {figures['machine']}, load {figures['load']:.1f}, {figures['date']}"
    table = Table("median (p90), ms", *(f"tracking {name}" for name in campaigns), title=title)
    columns = list(campaigns.values())
    for label, key in (
        ("overhead per trial", "overhead_ms"),
        ("  first quarter", "overhead_first_quarter_ms"),
        ("  last quarter", "overhead_last_quarter_ms"),
        ("whole trial", "trial_ms"),
        ("its two programs, bare", "bare_pair_ms"),
        ("engine's processor time", "engine_cpu_ms"),
    ):
        table.add_row(label, *(spread(column[key]) for column in columns))
    table.add_section()
    for step in columns[0]["step_ms"]:
        table.add_row(f"step {step}", *(spread(column["step_ms"][step]) for column in columns))
    table.add_section()
    for label, key in (
        ("memory, trial 1, MiB", "memory_first_mib"),
        ("memory, last trial, MiB", "memory_last_mib"),
    ):
        table.add_row(label, *(f"{column[key]:.1f}" for column in columns))
    table.add_row("growth per trial, KiB", *(f"{column['memory_per_trial_kib']:.1f}" for column in columns))
    console = Console(highlight=False)
    console.print(table)
    start_up = figures["start_up"]
    console.print(f"the two programs bare, before the campaigns: {spread(figures['bare_pair_before_ms'])} ms")
    console.print(
        f"nightshift --help: {spread(start_up['help_ms'])} ms; python -c pass: {spread(start_up['python_ms'])}"
    )


def spread(figure: dict[str, float]) -> str:
    return f"{figure['median']:.1f} ({figure['p90']:.1f})"


if __name__ == "__main__":
    main()
