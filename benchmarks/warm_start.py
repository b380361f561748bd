"""What a template saves: a program from its start until it is ready, cold and warm, and what a template costs.

    python -m benchmarks.warm_start [--rounds 5] [--environment lunar_lander] [--level bwrap]

Each round starts the environment's own program cold and warm, one after the other, in an order of its own. `ready_ms`
is the time on the clock, `ready_cpu_ms` the processor time of all its processes: on a busy machine only that compares.

training    until it reports `ready`: its next step is one of its environment
act         until it answers the judge that it is ready
template    the imports ahead, which are paid once: their processor time, and the memory of the process afterwards
own_mib     memory that the program, when it is ready, shares with nobody
beside      environment steps per second of a training on one core, alone and while templates import on another, for
            as long; and by how many per cent it is slower then, of the same round
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

import environments
from benchmarks.start import spread
from environments import Environment
from flows.engine.preparation import judging_kind, training_kind
from tasks import evaluate, imports_ahead, judged_start, train
from tasks.evaluate import PipedCandidate
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import findings
from tasks.sandbox.program import Program
from tasks.sandbox.warm import templates
from tasks.sandbox.warm.kind import ImportsAhead
from tasks.sandbox.warm.templates import Templates
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.system.slot import NOWHERE, Slot
from tasks.trial import Proposal

SECONDS = 300.0
BESIDE_SECONDS = 6.0
"""Long enough for the imports of two templates."""
NOTHING = ImportsAhead()
MIB = 2**20


class Place:
    """Where the program of one environment is started."""

    def __init__(self, folder: Path, environment: Environment, level: Level) -> None:
        self.environment, self.level, self.trial = environment, level, TrialDir(folder / "trial")
        self.program = folder / "program"
        for file, name in workspace.baseline_files(environment):
            (self.program / name).parent.mkdir(parents=True, exist_ok=True)
            (self.program / name).write_bytes(file.read_bytes())

    def training(self, ahead: ImportsAhead, slot: Slot = NOWHERE) -> Program:
        place, problem = self.trial, self.environment
        place.path.mkdir(exist_ok=True)
        workspace.prepare(place, self.program, problem, Proposal(problem.defaults), seed=1)
        confinement.give(place.out, self.level)
        return Program(
            ["python", "train.py"], cwd=place.workspace, log=place.log, marker="benchmark", level=self.level,
            view=train.view_of(problem, place), limits=problem.limits, slot=slot, ahead=ahead,
        )  # fmt: skip

    def acting(self, ahead: ImportsAhead) -> Program:
        place, problem = self.trial, self.environment
        return Program(
            judged_start.command(["python", "train.py", "act"]), cwd=place.workspace, log=place.judge_log,
            marker="benchmark", level=self.level, view=evaluate.view(problem, place), limits=problem.limits, pipes=True,
            counted=True, ahead=ahead,
        )  # fmt: skip

    def ready_training(self, ahead: ImportsAhead) -> dict[str, float]:
        began = time.perf_counter()
        with self.training(ahead) as program:
            while not (self.trial.progress.is_file() and "ready" in self.trial.progress.read_text()):
                assert program.poll(0.002) is None, program.tail()
            return measured(program, began)

    def speed(self, ahead: ImportsAhead, core: int, meanwhile: Callable[[], None]) -> float:
        """Environment steps per second of a training, from when it is ready until that has been done."""
        with self.training(ahead, Slot("benchmark", cores=(core,))) as program:
            while not (self.trial.progress.is_file() and "ready" in self.trial.progress.read_text()):
                assert program.poll(0.002) is None, program.tail()
            meanwhile()
            program.terminate(SECONDS)
        last = json.loads(self.trial.progress.read_text().splitlines()[-1])
        return float(last["step"] / last["elapsed"])

    def ready_acting(self, ahead: ImportsAhead) -> dict[str, float]:
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
            figures = measured(program, began)
        assert (loaded, answer) == (judged_start.LOADED, b'{"ready": true}'), (loaded, answer)
        return figures

    def _observed(self) -> list[int]:
        import gymnasium

        return list(gymnasium.make(str(self.environment.judge.problem()["id"])).observation_space.shape or ())

    def leave_policy(self) -> None:
        """Train until there is something to play."""
        with self.training(NOTHING) as program:
            while not self.trial.progress.is_file() or self.trial.progress.read_text().count("\n") < 2:
                assert program.poll(0.05) is None, program.tail()
            program.terminate(SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a template saves at the start of a program.")
    parser.add_argument("--rounds", type=int, default=5, help="starts of each (5)")
    parser.add_argument("--environment", default="lunar_lander", help="whose trainer is started (lunar_lander)")
    parser.add_argument("--level", help="one level of isolation; without it, every one that works here")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    levels = [f.level for f in findings() if f.works and options.level in (None, f.level)]
    environment = environments.named(options.environment)
    if environment.trainer not in ("ppo", "sac"):
        parser.error(f"--environment {options.environment}: its trainer {environment.trainer} needs prepared files")
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for level in levels:
        values = starts(environment, level, options.rounds)
        figures[level] = {name: spread(each) for name, each in values.items()}
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def starts(environment: Environment, level: Level, rounds: int) -> dict[str, list[float]]:
    told: list[str] = []
    values: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        learner, player = (Place(folder / name, environment, level) for name in ("learner", "player"))
        programs = {"training": (learner.ready_training, imports_ahead.for_training(environment))}
        if ahead := imports_ahead.for_judging(environment):
            programs["act"] = (player.ready_acting, ahead)
            player.leave_policy()
        shuffle = random.Random(0).shuffle
        with templates.opened(folder / "templates", "benchmark", told.append) as warm:
            for what, cost in made(environment, warm).items():
                values |= {f"{what}/template_{unit}": [value] for unit, value in cost.items()}
            for _ in range(rounds):
                for what, (start, ahead) in programs.items():
                    order = [("cold", NOTHING), ("warm", ahead)]
                    shuffle(order)
                    for name_, imported in order:
                        for unit, value in start(imported).items():
                            values.setdefault(f"{what}/{unit}/{name_}", []).append(value)
            if len(cores := sorted(os.sched_getaffinity(0))) > 1:
                for _ in range(rounds):
                    for name_, value in beside(learner, imports_ahead.for_training(environment), folder, cores).items():
                        values.setdefault(f"beside/{name_}", []).append(value)
        assert not told, told
    return values


def beside(learner: Place, ahead: ImportsAhead, folder: Path, cores: Sequence[int]) -> dict[str, float]:
    """The speed of a training alone, and while templates import on another core."""
    kind = training_kind(learner.environment)
    assert kind

    def imports() -> None:
        began = time.monotonic()
        while time.monotonic() - began < BESIDE_SECONDS:
            others = Templates(folder / "others", "benchmark", print)
            others._template(kind, (cores[1],)).wait()
            others.close()

    meanwhile = {"alone": lambda: time.sleep(BESIDE_SECONDS), "imports": imports}
    order = random.sample(sorted(meanwhile), len(meanwhile))
    speeds = {f"{name}/steps_per_second": learner.speed(ahead, cores[0], meanwhile[name]) for name in order}
    alone, disturbed = (speeds[f"{name}/steps_per_second"] for name in meanwhile)
    return speeds | {"slower_percent": 100 * (1 - disturbed / alone)}


def made(environment: Environment, warm: Templates) -> dict[str, dict[str, float]]:
    """Make the templates; what each has cost."""
    costs = {}
    for what, kind in (("training", training_kind(environment)), ("act", judging_kind(environment))):
        if kind:
            template = warm._template(kind, ())
            template.wait()
            process = psutil.Process(template.process.pid)
            cpu, memory = sum(process.cpu_times()[:2]), process.memory_full_info().uss / MIB
            costs[what] = {"cpu_ms": 1000 * cpu, "mib": memory}
    return costs


def measured(program: Program, began: float) -> dict[str, float]:
    """What a program has used that has just become ready."""
    seconds, cpu = time.perf_counter() - began, program.cpu_seconds()
    members = psutil.Process(program.process.pid).children(recursive=True)
    own = max(member.memory_full_info().uss for member in members)
    return {"ready_ms": 1000 * seconds, "ready_cpu_ms": 1000 * cpu, "own_mib": own / MIB}


def show(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    names = list(dict.fromkeys(name for figure in figures.values() for name in figure))
    table = Table("median (low .. high)", *figures, title=f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}")
    for name in names:
        cells = (figure.get(name) for figure in figures.values())
        table.add_row(name, *(f"{c['median']} ({c['low']} .. {c['high']})" if c else "" for c in cells))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
