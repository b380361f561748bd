"""The list of the benchmarks, and a way to run one of them.

python -m benchmarks                            the list, with the time that each takes on two cores
python -m benchmarks NAME [options]             the same as python -m benchmarks.NAME [options]
python -m benchmarks NAME --smoke [options]     at the smallest size: whether it runs, not a figure
"""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Benchmark:
    """How long a benchmark takes at its default size, and the arguments of its smallest one."""

    time: str
    smoke: str


SHORT = "--set budget_steps=1500 --set control.episodes=4"
BENCHMARKS = {
    "aggregate_interval": Benchmark("5 min", "--draws 4"),
    "certificate_levels": Benchmark("20 min", "--rows 500"),
    "chaos": Benchmark("40 min", "--kills 4 --short --seed 3"),
    "comparisons": Benchmark("2 min", "--nights 20"),
    "decisions": Benchmark("25 min", "--campaigns 4 --nulls 4 --runs 20 --jobs 1"),
    "demos": Benchmark("2 h", "--demos 1 --fresh 1 --trials 2 --environment cartpole"),
    "edits": Benchmark("20 s", "--each 1"),
    "gpu": Benchmark("10 min", "--devices cpu --only judge --models tiny"),
    "grpo": Benchmark("5 min", "--rounds 1 --steps 2"),
    "headline": Benchmark("a week", "repeat --budget 2 --seeds 2 --episodes 2"),
    "known_edits": Benchmark("15 min", "measure --runs 2 --only ReLU"),
    "night": Benchmark("8 h", "--hours 0.1 --rule greedy"),
    "null_nights": Benchmark("10 min", "--campaigns 4 --trials 8 --jobs 1"),
    "pending": Benchmark("5 min", "--proposers tpe --pending 4 --trials 6 --repetitions 2"),
    "pipe_judge": Benchmark("5 min", "--rounds 2 --lanes 4"),
    "postgres": Benchmark("1 h", "--trials 4 --workers 2"),
    "ppo_edits": Benchmark("5 min", "--seconds 1 --envs 4 --only ReLU"),
    "ppo_learning": Benchmark("6 min", "--steps 2000 --seeds 2"),
    "ppo_throughput": Benchmark("10 min", "--rounds 1 --seconds 2"),
    "prediction_interval": Benchmark("2 min", "--draws 50"),
    "prefect_faults": Benchmark("10 min", "--runs 2 --kills 1"),
    "proposers": Benchmark("1 h", "--proposers tpe --problems bump rugged --trials 3 --repetitions 2"),
    "showcase": Benchmark("1 min", ""),
    "reports": Benchmark("2 min", "--trials 20 --campaigns 3"),
    "sandbox": Benchmark("1 min", "--rounds 5"),
    "scale": Benchmark("10 min", "--parallel 4 --trials 8 --seconds 6 --killed 0.25"),
    "search_hours": Benchmark(
        "a week", f"--problems cartpole --lanes tpe greedy --trials 2 --fresh 2 --seeds 1 {SHORT}"
    ),
    "size": Benchmark("10 min", "--trials 30 --more 1"),
    "slot_utilisation": Benchmark("1 min", "--trials 2 --budget 1"),
    "start": Benchmark("1 min", "--rounds 1 --trainings 1"),
    "text_judge": Benchmark("5 min", "--rounds 1 --batches 64 --base-steps 20"),
    "trial_overhead": Benchmark("5 min", "--trials 8"),
}


def main(arguments: list[str]) -> None:
    if not arguments:
        show()
        return
    name, *options = arguments
    if name not in BENCHMARKS:
        sys.exit(f"no benchmark is called {name!r}. Available: {', '.join(BENCHMARKS)}")
    if "--smoke" in options:
        options.remove("--smoke")
        options = [*BENCHMARKS[name].smoke.split(), *options]
    os.execv(sys.executable, [sys.executable, "-m", f"benchmarks.{name}", *options])


def show() -> None:
    table = Table("benchmark", "time", "what it measures", title="make bench NAME=...")
    for name, benchmark in BENCHMARKS.items():
        folder = Path(__file__).with_name(name)
        source = folder / "__main__.py" if folder.is_dir() else folder.with_suffix(".py")
        says = ast.get_docstring(ast.parse(source.read_text())) or ""
        table.add_row(name, benchmark.time, says.partition("\n")[0])
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
