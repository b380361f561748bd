"""What the engine costs per trial beyond the time of the trial's own processes.

    python -m benchmarks.trial_overhead [--trials 90] [--json]

Two real campaigns run in this process, one recorded by MLflow (sqlite) and one with tracking off, at a Prefect server
of their own that a short campaign has warmed up. Their program writes an empty checkpoint, and the command that judges
it writes `{"score": 0}`: a trial is two short processes, and all the rest of it is the engine's.

After every trial the same two command lines run once more, bare: `subprocess.run`, same interpreter and environment.
A trial's overhead is its time, from the end of one bare pair to the end of its own last task, less the pair after it,
so that other load falls on both. The baseline's trial, and the start of the flow with it, counts nowhere. The rule is
greedy, so that there is no certificate. A step lasts from the end of the step before it to its own. Memory (resident)
and processor time are this process's: the flow, the clients of Prefect and MLflow.
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

from benchmarks.campaigns import FOREIGN, free_port
from benchmarks.lives import Server
from benchmarks.tables import about, show
from tasks.sandbox.program import child_environment

FILES = {
    "train.py": 'import sys\nopen(sys.argv[1] + "/checkpoint", "w").close()\n',
    "evaluate.py": "import sys\nwith open(sys.argv[1], 'w') as file:\n    file.write('{\"score\": 0}')\n",
    "environment.toml": """
        metric = "score"
        direction = "maximize"
        trainer = "command"
        program = ["train.py"]
        train_cmd = "python train.py {out}"
        budget_seconds = 10
        deterministic = true
        judge = "command"
        command.eval_cmd = "python evaluate.py {result}"
        space.x = { type = "float", low = 0.0, high = 1.0, default = 0.5 }
    """,
}
QUIET = ("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_LOGGING_INTERNAL_LEVEL")
Figures = dict[str, Any]


@dataclass(frozen=True)
class Lap:
    """One trial and the bare pair after it: seconds, and MiB held at its end."""

    steps: dict[str, float]
    bare: float
    cpu: float
    memory: float


@dataclass
class Stopwatch:
    """Called at the end of each step of the campaign; `record` ends a lap, and a bare pair runs."""

    bare: Callable[[], float]
    laps: list[Lap] = field(default_factory=list)
    _steps: dict[str, float] = field(default_factory=dict)
    _since: float = 0.0
    _cpu: float = 0.0

    def attach(self) -> None:
        import flows.campaign  # noqa: F401
        from tasks.decide import decide
        from tasks.evaluate import evaluate
        from tasks.propose import propose
        from tasks.record import record
        from tasks.train import train

        for task in (propose, train, evaluate, decide):
            task.on_completion(lambda task, task_run, state: self.ended(task.name))

        def recorded(*arguments: Any) -> Any:
            trial = record(*arguments)
            self.ended("record")
            return trial

        for module in list(sys.modules.values()):  # it is no task, with hooks
            if vars(module).get("record") is record:
                vars(module)["record"] = recorded

    def ended(self, step: str) -> None:
        self._steps[step] = time.perf_counter() - self._since
        if step == "record":
            cpu, memory = time.process_time() - self._cpu, psutil.Process().memory_info().rss / 2**20
            self.laps.append(Lap(self._steps, self.bare(), cpu, memory))
            self._steps, self._cpu = {}, time.process_time()
        self._since = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description="What the engine costs per trial.")
    parser.add_argument("--trials", type=int, default=90, help="empty trials of each campaign (90)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.trials < 8:
        parser.error(f"--trials must be at least 8, to compare quarters of a campaign, got {options.trials}")
    figures = measure(options.trials)
    print(json.dumps(figures, indent=2)) if options.json else print_table(figures)


def measure(trials: int) -> Figures:
    """Every figure, in the unit that its name says; of times the median and the 90th percentile."""
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as folder:
        home, problem = Path(folder, "home"), Path(folder, "empty")
        problem.mkdir()
        for name, content in FILES.items():
            (problem / name).write_text(content)
        for name in FOREIGN:
            os.environ.pop(name, None)
        # Read by Prefect and by the engine when they are first imported.
        os.environ |= {"NIGHTSHIFT_HOME": str(home), "PREFECT_HOME": str(home / ".prefect"), "DO_NOT_TRACK": "1"}
        os.environ |= dict.fromkeys(QUIET, "CRITICAL") | {"PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        (home / ".prefect").mkdir(parents=True, mode=0o700)
        bare = partial(run_bare, problem, child_environment(str(home), "bare", Path(sys.executable)))
        alone = {"bare_pair_ms/before": spread([bare() for _ in range(20)])}
        server = Server.start(Path(folder, "server"), free_port())
        os.environ["PREFECT_API_URL"] = server.url
        try:
            server.wait()
            (stopwatch := Stopwatch(bare)).attach()
            run = partial(run_campaign, stopwatch, str(problem))
            run("warm-up", None, 8)
            campaigns = {"mlflow": run("mlflow", None, trials), "tracking_off": run("off", "off", trials)}
        finally:
            server.kill()
    return {"about": about(f"{trials} empty trials"), "campaigns": campaigns, "alone": alone}


def run_bare(problem: Path, environment: dict[str, str]) -> float:
    """Seconds that the two processes of an empty trial take when nobody watches them."""
    programs = (["train.py", "."], ["evaluate.py", "result.json"])
    return sum(timed(program, cwd=problem, env=environment) for program in programs)


def timed(arguments: list[str], **where: Any) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, **where)
    return time.perf_counter() - started


def run_campaign(watch: Stopwatch, problem: str, name: str, to: str | None, trials: int) -> Figures:
    """Run a campaign as the command does; the figures of its trials, the baseline left out."""
    from flows.campaign import campaign

    watch.laps = []
    end = campaign(problem, name, rule="greedy", trials=trials, tracking=to, seed=0, return_state=True)
    if not end.is_completed() or len(watch.laps) != trials + 1:
        raise RuntimeError(f"{name}: timed {len(watch.laps)} of {trials + 1} trials; {end!r}")
    return summary(watch.laps[1:])


def summary(laps: Sequence[Lap]) -> Figures:
    walls, quarter = [sum(lap.steps.values()) for lap in laps], len(laps) // 4
    overheads = [wall - lap.bare for wall, lap in zip(walls, laps, strict=True)]
    return {
        "overhead_ms": spread(overheads),
        "overhead_ms/first_quarter": spread(overheads[:quarter]),
        "overhead_ms/last_quarter": spread(overheads[-quarter:]),
        "trial_ms": spread(walls),
        **{f"trial_ms/{step}": spread([lap.steps[step] for lap in laps]) for step in laps[0].steps},
        "bare_pair_ms": spread([lap.bare for lap in laps]),
        "processor_ms": spread([lap.cpu for lap in laps]),
        "memory_mib/first_trial": laps[0].memory,
        "memory_mib/last_trial": laps[-1].memory,
        "memory_kib/per_trial": (laps[-1].memory - laps[0].memory) * 1024 / (len(laps) - 1),
    }


def spread(seconds: Sequence[float]) -> dict[str, float]:
    p90 = statistics.quantiles(seconds, n=10, method="inclusive")[-1]
    return {"median": round(statistics.median(seconds) * 1000, 2), "p90": round(p90 * 1000, 2)}


def print_table(figures: Figures) -> None:
    columns: dict[str, Figures] = figures["campaigns"]
    rows = [[key, *(shown(column[key]) for column in columns.values())] for key in columns["tracking_off"]]
    rows += [[key, shown(figure)] for key, figure in figures["alone"].items()]
    show(("median (90th percentile)", *columns), rows, figures["about"])


def shown(figure: dict[str, float] | float) -> str:
    return f"{figure:.1f}" if isinstance(figure, float) else f"{figure['median']:.1f} ({figure['p90']:.1f})"


if __name__ == "__main__":
    main()
