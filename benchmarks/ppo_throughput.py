"""Environment steps per second of PPO, beside a plain single file.

    python -m benchmarks.ppo_throughput [--id BipedalWalker-v3] [--rounds 3] [--seconds 20] [--only plain ppo] [--json]

All train networks of 64x64 and take turns, in an order of its own in each round, so that other load falls on all alike.
`plain` is `benchmarks/plain_ppo.py`, a re-implementation of CleanRL's file. `ppo` is the bundled trainer as the engine
starts it, with 8 and with 64 environments, on one core and on all, observations and rewards standardised; and with
EnvPool, where that is installed. The steps per second are those after everything has been loaded and made, in whole
rounds of rollout and update; `of plain` is the ratio to the plain file in the same round. CPU is that of all processes
of the trainer, loading included, so it is higher than training's own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.tables import about, show, spread
from tasks.store.workspace import trainer_files

NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}
CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class Layout:
    """How the bundled trainer runs in one of its rows; all other parameters are its defaults."""

    envs: int
    cores: int = CORES
    simulator: str = "gymnasium"


OURS = {
    "ppo, 8 envs, 1 core": Layout(8, cores=1), "ppo, 64 envs, 1 core": Layout(64, cores=1),
    "ppo, 8 envs": Layout(8), "ppo, 64 envs": Layout(64),
    "ppo, EnvPool, 64 envs, 1 core": Layout(64, 1, "envpool"), "ppo, EnvPool, 64 envs": Layout(64, CORES, "envpool"),
}  # fmt: skip
PLAIN = "plain"


@dataclass(frozen=True)
class Lap:
    """One training."""

    steps_per_second: float
    cpu_us_per_step: float


def main() -> None:
    parser = argparse.ArgumentParser(description="Environment steps per second of PPO.")
    parser.add_argument("--id", default="BipedalWalker-v3", help="environment with Box actions (BipedalWalker-v3)")
    parser.add_argument("--rounds", type=int, default=3, help="trainings by each (3)")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each training (20)")
    parser.add_argument("--only", nargs="+", default=[""], help="trainers whose names begin so (all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    names = [name for name in trainers() if name.startswith(tuple(options.only))]
    laps = measure(options.id, names, options.rounds, options.seconds)
    print(json.dumps(laps, default=vars, indent=2)) if options.json else print_table(options.id, laps)


def measure(id: str, names: list[str], rounds: int, seconds: float) -> list[dict[str, Lap]]:
    """The laps of each round, by trainer."""
    draw, laps = random.Random(0), list[dict[str, Lap]]()
    for number in range(rounds):
        lap = dict[str, Lap]()
        for name in draw.sample(names, len(names)):
            before, began = cpu_seconds(), time.monotonic()
            steps, took = bundled(id, seconds, number, OURS[name]) if name in OURS else plain(id, seconds)
            lap[name] = Lap(steps / took, (cpu_seconds() - before) / max(steps, 1) * 1e6)
            print(f"{name}: {lap[name]} in {time.monotonic() - began:.0f} s", file=sys.stderr)
        laps.append(lap)
    return laps


def trainers() -> list[str]:
    pool = importlib.util.find_spec("envpool")
    return [PLAIN, *(name for name, layout in OURS.items() if pool or layout.simulator == "gymnasium")]


def cpu_seconds() -> float:
    """Those of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bundled(id: str, seconds: float, seed: int, layout: Layout) -> tuple[int, float]:
    """The trainer in a workspace of its own; the steps and the seconds of its last update."""
    config = {
        "params": {**NORMALIZED, "num_envs": layout.envs, "simulator": layout.simulator}, "seed": seed,
        "budget_seconds": seconds, "budget_steps": 0, "cores": layout.cores, "device": "cpu",
        "problem": {"id": id, "kwargs": {}, "max_episode_steps": None},
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as folder:
        place = Path(folder)
        for source, name in trainer_files("ppo"):
            (place / name).write_text(source.read_text())
        (place / "config.json").write_text(json.dumps(config | {"out": str(place / "out")}))
        subprocess.run([sys.executable, "train.py"], cwd=place, env=environment(), check=True)
        lines = [json.loads(line) for line in (place / "out/progress.jsonl").read_text().splitlines()[1:]]
    # Whole rounds of rollout and update, as for the others: not the time of the rollout that the end cut off.
    last = next(line for line in lines if line["step"] == lines[-1]["step"])
    return last["step"], last["elapsed"]


def plain(id: str, seconds: float) -> tuple[int, float]:
    """The plain file, in a process of its own."""
    program = (
        "import sys; from benchmarks.plain_ppo import train; print(*train(sys.argv[1], float(sys.argv[2]), seed=1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, id, str(seconds)], env=environment(), stdout=subprocess.PIPE, text=True,
        check=True,
    )  # fmt: skip
    steps, took = done.stdout.split()[-2:]
    return int(steps), float(took)


def environment() -> dict[str, str]:
    """One thread each, as the sandbox tells every program."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def print_table(id: str, laps: list[dict[str, Lap]]) -> None:
    names = [name for name in trainers() if name in laps[0]]
    rows = []
    for name in names:
        speeds = [lap[name].steps_per_second for lap in laps]
        ratios = [lap[name].steps_per_second / lap[names[0]].steps_per_second for lap in laps]
        cpu = median(lap[name].cpu_us_per_step for lap in laps)
        rows.append((name, spread(speeds, 0), spread(ratios), f"{cpu:.0f}"))
    title = about(f"median (least to most), {id}, {len(laps)} rounds")
    show(("trainer", "steps/s", f"of {names[0]}, by round", "CPU us/step"), rows, title)


if __name__ == "__main__":
    main()
