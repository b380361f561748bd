"""The list of the benchmarks, and a way to run one of them.

python -m benchmarks                            the list, with the time that each takes on two cores
python -m benchmarks NAME [options]             the same as python -m benchmarks.NAME [options]
python -m benchmarks NAME --smoke [options]     at the smallest size: whether it runs, not a figure
"""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

from benchmarks import tables

SHORT = "--trials 2 --fresh 2 --seeds 1 --set budget_steps=1500 --set control.episodes=4"
BENCHMARKS = {
    "chaos": ("40 min", "--kills 4 --short --seed 3"),
    "decisions": ("25 min", "--campaigns 4 --nulls 4 --runs 20 --jobs 1"),
    "demos": ("2 h", "--demos 1 --fresh 1 --trials 2 --environment cartpole"),
    "edits": ("20 s", "--each 1"),
    "gpu": ("10 min", "--devices cpu --only grpo --models tiny --steps 2"),
    "grpo": ("5 min", "--rounds 1 --steps 2"),
    "night": ("8 h", "--hours 0.1 --rule greedy"),
    "ppo_throughput": ("10 min", "--rounds 1 --seconds 2"),
    "real_model": ("20 min", "--questions 4 --max-tokens 8"),
    "search_hours": ("a week", f"--problems cartpole --lanes tpe greedy {SHORT}"),
    "showcase": ("1 min", ""),
    "trial_overhead": ("5 min", "--trials 8"),
}
"""How long each takes at its default size, and the arguments of its smallest one."""


def main(arguments: list[str]) -> None:
    if not arguments:
        show()
        return
    name, *options = arguments
    if name not in BENCHMARKS:
        sys.exit(f"no benchmark is called {name!r}. Available: {', '.join(BENCHMARKS)}")
    if "--smoke" in options:
        options.remove("--smoke")
        options = [*BENCHMARKS[name][1].split(), *options]
    os.execv(sys.executable, [sys.executable, "-m", f"benchmarks.{name}", *options])


def show() -> None:
    rows = []
    for name, (duration, _) in BENCHMARKS.items():
        source = Path(__file__).with_name(f"{name}.py")
        doc = ast.get_docstring(ast.parse(source.read_text())) or ""
        rows.append((name, duration, doc.partition("\n")[0]))
    tables.show(("benchmark", "time", "what it measures"), rows, title="make bench NAME=...")


if __name__ == "__main__":
    main(sys.argv[1:])
