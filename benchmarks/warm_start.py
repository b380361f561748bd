"""What a standby saves: a program from its start until it is ready, cold and warm, and what the import ahead costs.

    python -m benchmarks.warm_start [--rounds 5] [--environment lunar_lander] [--level bwrap] [--neighbour]

Each round starts the environment's own program cold and warm, one after the other, in an order of its own. `ready_ms`
is the time on the clock, `ready_cpu_ms` the processor time of all its processes: on a busy machine only that compares.

training    until it reports `ready`: its next step is one of its environment
act         until it answers the judge that it is ready
standby     the import ahead: its processor time, and the resident memory of one that waits
neighbour   environment steps per second of processor time of a training, beside the import of a standby and alone
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from functools import partial
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

import environments
from benchmarks.start import spread
from environments import Environment
from flows.engine.preparation import acting_kind, training_kind
from tasks import evaluate, imports_ahead, judged_start, train
from tasks.evaluate import PipedCandidate
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import findings
from tasks.sandbox.program import Program
from tasks.sandbox.warm import pool
from tasks.sandbox.warm.kind import ImportsAhead
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.trial import Proposal

SECONDS = 300.0
NEIGHBOUR_SECONDS = 4.0
NOTHING = ImportsAhead()


class Place:
    """Where the program of one environment is started."""

    def __init__(self, folder: Path, environment: Environment, level: Level) -> None:
        self.environment, self.level, self.trial = environment, level, TrialDir(folder / "trial")
        self.program = folder / "program"
        for file, name in workspace.baseline_files(environment):
            (self.program / name).parent.mkdir(parents=True, exist_ok=True)
            (self.program / name).write_bytes(file.read_bytes())

    def training(self, ahead: ImportsAhead) -> Program:
        place, problem = self.trial, self.environment
        place.path.mkdir(exist_ok=True)
        workspace.prepare(place, self.program, problem, Proposal(problem.defaults), seed=1)
        confinement.give(place.out, self.level)
        return Program(
            ["python", "train.py"], cwd=place.workspace, log=place.log, marker="benchmark", level=self.level,
            view=train.view_of(problem, place), limits=problem.limits, ahead=ahead,
        )  # fmt: skip

    def acting(self, ahead: ImportsAhead) -> Program:
        place, problem = self.trial, self.environment
        return Program(
            judged_start.command(["python", "train.py", "act"]), cwd=place.workspace, log=place.judge_log,
            marker="benchmark", level=self.level, view=evaluate.view(problem, place), limits=problem.limits, pipes=True,
            counted=True, ahead=ahead,
        )  # fmt: skip

    def ready_training(self, ahead: ImportsAhead) -> tuple[float, float]:
        began = time.perf_counter()
        with self.training(ahead) as program:
            while not (self.trial.progress.is_file() and "ready" in self.trial.progress.read_text()):
                assert program.poll(0.002) is None, program.tail()
            return time.perf_counter() - began, program.cpu_seconds()

    def ready_acting(self, ahead: ImportsAhead) -> tuple[float, float]:
        hello = {
            "protocol": 2, "lanes": 1, "observation": [{"dtype": "float32", "shape": self._observed()}],
            "action": [{"dtype": "int64", "shape": []}], "deterministic": [True], "seed": 1,
        }  # fmt: skip
        began = time.perf_counter()
        with self.acting(ahead) as program:
            candidate = PipedCandidate(program, self.trial.result)
            loaded = candidate.receive_line(100, SECONDS)
            candidate.send(json.dumps(hello).encode() + b"\n", SECONDS)
            answer = candidate.receive_line(100, SECONDS)
            seconds, cpu = time.perf_counter() - began, program.cpu_seconds()
        assert (loaded, answer) == (judged_start.LOADED, b'{"ready": true}'), (loaded, answer)
        return seconds, cpu

    def _observed(self) -> list[int]:
        import gymnasium

        return list(gymnasium.make(str(self.environment.judge.problem()["id"])).observation_space.shape or ())

    def leave_policy(self) -> None:
        """Train until there is something to play."""
        with self.training(NOTHING) as program:
            while not self.trial.progress.is_file() or self.trial.progress.read_text().count("\n") < 2:
                assert program.poll(0.05) is None, program.tail()
            program.terminate(SECONDS)

    def steps_per_second(self, seconds: float) -> float:
        """Of processor time, from when it is ready."""
        with self.training(NOTHING) as program:
            while not (self.trial.progress.is_file() and "ready" in self.trial.progress.read_text()):
                program.poll(0.01)
            program.count_cpu()
            deadline = time.perf_counter() + seconds
            while time.perf_counter() < deadline:
                program.poll(0.05)
            used = program.cpu_seconds()
            reports = [json.loads(line) for line in self.trial.progress.read_text().splitlines()[1:]]
        return float(reports[-1]["step"]) / used


def main() -> None:
    parser = argparse.ArgumentParser(description="What a standby saves at the start of a program.")
    parser.add_argument("--rounds", type=int, default=5, help="starts of each (5)")
    parser.add_argument("--environment", default="lunar_lander", help="whose trainer is started (lunar_lander)")
    parser.add_argument("--level", help="one level of isolation; without it, every one that works here")
    parser.add_argument("--neighbour", action="store_true", help="measure the neighbour instead of the starts")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    levels = [f.level for f in findings() if f.works and options.level in (None, f.level)]
    environment = environments.named(options.environment)
    measured = neighbour if options.neighbour else starts
    figures = {}
    for level in levels:
        values = measured(environment, level, options.rounds)
        figures[level] = {name: spread(each) for name, each in values.items()}
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def starts(environment: Environment, level: Level, rounds: int) -> dict[str, list[float]]:
    told: list[str] = []
    values: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        learner, player = (Place(folder / name, environment, level) for name in ("learner", "player"))
        programs = {"training": (learner.ready_training, imports_ahead.for_training(environment), training_kind)}
        if ahead := imports_ahead.for_acting(environment):
            programs["act"] = (player.ready_acting, ahead, acting_kind)
        shuffle = random.Random(0).shuffle
        with pool.opened(folder / "standby", "benchmark", told.append) as warm:
            if "act" in programs:
                player.leave_policy()
            for _ in range(rounds):
                for what, (start, ahead, kind_of) in programs.items():
                    kind = kind_of(environment, level)
                    assert kind is not None
                    warm.expect(kind)
                    standby = waiting(warm)
                    note = partial(keep, values, what)
                    note("standby_cpu_ms", 1000 * psutil_cpu(standby))
                    note("standby_mib", resident(standby) / 2**20)
                    order = [("cold", NOTHING), ("warm", ahead)]
                    shuffle(order)
                    for name_, imported in order:
                        if name_ == "warm":
                            warm._due.append(kind)  # so that none is prepared beside it
                            warm._faults = [kind] * pool.FAULTS
                        seconds, cpu = start(imported)
                        note(f"ready_ms/{name_}", 1000 * seconds)
                        note(f"ready_cpu_ms/{name_}", 1000 * cpu)
                    warm._due.clear()
                    warm._faults.clear()
        assert not told, told
    return values


def neighbour(environment: Environment, level: Level, rounds: int) -> dict[str, list[float]]:
    """A training beside the import of a standby, as a ratio to the same alone."""
    ratios = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as name:
            folder = Path(name).resolve()
            folder.chmod(0o755)
            place = Place(folder, environment, level)
            alone = place.steps_per_second(NEIGHBOUR_SECONDS)
            with pool.opened(folder / "standby", "benchmark", print) as warm:
                kind = training_kind(environment, level)
                assert kind is not None
                warm.expect(kind)
                ratios.append(place.steps_per_second(NEIGHBOUR_SECONDS) / alone)
    return {"neighbour/ratio_percent": [100 * ratio for ratio in ratios]}


def keep(values: dict[str, list[float]], what: str, name: str, value: float) -> None:
    values.setdefault(f"{what}/{name}", []).append(value)


def waiting(warm: pool.Pool) -> psutil.Process:
    """The supervisor of the one standby that waits."""
    while not warm._waiting:
        time.sleep(0.01)
    return psutil.Process(warm._waiting[0][0].supervised.process.pid)


def psutil_cpu(supervisor: psutil.Process) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in supervisor.children(recursive=True))


def resident(supervisor: psutil.Process) -> float:
    return float(sum(each.memory_full_info().uss for each in supervisor.children(recursive=True)))


def show(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    names = list(dict.fromkeys(name for figure in figures.values() for name in figure))
    table = Table("median (low .. high)", *figures, title=f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}")
    for name in names:
        cells = (figure.get(name) for figure in figures.values())
        table.add_row(name, *(f"{c['median']} ({c['low']} .. {c['high']})" if c else "" for c in cells))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
