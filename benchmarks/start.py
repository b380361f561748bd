"""How long the command line takes to start, against what Python itself takes.

    python -m benchmarks.start [--rounds 15] [--trainings 3] [--json]

A round runs each once, one after the other, and ratios are taken within a round: `nightshift --help` and an interpreter
that does nothing; `nightshift run cartpole` in a new home, until its first training's program is laid out, and
`import torch`. The run starts its own Prefect server, and is interrupted then.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

HELP = ("-m", "flows.cli", "--help")
BARE = ("-c", "pass")
TORCH = ("-c", "import torch")
RUN = ("-m", "flows.cli", "run", "cartpole", "--name", "first", "--trials", "1")
FOREIGN = ("PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_TRACKING_URI")  # ways to somebody's real servers


def main() -> None:
    parser = argparse.ArgumentParser(description="How long the command line takes to start.")
    parser.add_argument("--rounds", type=int, default=15, help="starts of each (15)")
    parser.add_argument("--trainings", type=int, default=3, help="campaigns that are started (3)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    rounds = [(timed(HELP), timed(BARE)) for _ in range(options.rounds)]
    figures = {
        "help_ms": spread([1000 * shown for shown, _ in rounds]),
        "bare_interpreter_ms": spread([1000 * bare for _, bare in rounds]),
        "ratio": spread([shown / bare for shown, bare in rounds]),
    }
    if starts := [(until_training(), timed(TORCH)) for _ in range(options.trainings)]:
        figures["first_training_ms"] = spread([1000 * began for began, _ in starts])
        figures["import_torch_ms"] = spread([1000 * torch for _, torch in starts])
        figures["training_ratio"] = spread([began / torch for began, torch in starts])
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def timed(arguments: Sequence[str]) -> float:
    """Wall seconds of one start."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def until_training() -> float:
    """Wall seconds from the command to the moment at which its first program is about to be started."""
    with tempfile.TemporaryDirectory(prefix="nightshift-start-") as home:
        ours = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        laid_out, began = Path(home, "first/trials/0000/workspace/config.json"), time.perf_counter()
        with Path(home, "output.txt").open("wb") as log:
            run = subprocess.Popen([sys.executable, *RUN], stdout=log, stderr=log, env=ours | {"NIGHTSHIFT_HOME": home})
            while not laid_out.exists() and run.poll() is None:
                time.sleep(0.005)
            seconds = time.perf_counter() - began
            run.send_signal(signal.SIGINT)
            run.wait()
        if not laid_out.exists():
            raise RuntimeError(f"no training was started: {Path(home, 'output.txt').read_text()}")
    return seconds


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 1), "low": round(min(values), 1), "high": round(max(values), 1)}


def show(figures: dict[str, dict[str, float]]) -> None:
    table = Table("figure", "median", "low", "high")
    for name, figure in figures.items():
        table.add_row(name, *(str(figure[key]) for key in ("median", "low", "high")))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
