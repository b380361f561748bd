"""How long the command line takes to start: `nightshift --help` against an interpreter that does nothing.

    python -m benchmarks.start [--rounds 15] [--json]

A round runs each once, one after the other; `ratio` is taken within a round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

HELP = ("-m", "flows.cli", "--help")
BARE = ("-c", "pass")


def main() -> None:
    parser = argparse.ArgumentParser(description="How long the command line takes to start.")
    parser.add_argument("--rounds", type=int, default=15, help="starts of each (15)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    rounds = [(timed(HELP), timed(BARE)) for _ in range(options.rounds)]
    figures = {
        "help_ms": spread([1000 * shown for shown, _ in rounds]),
        "bare_interpreter_ms": spread([1000 * bare for _, bare in rounds]),
        "ratio": spread([shown / bare for shown, bare in rounds]),
    }
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def timed(arguments: Sequence[str]) -> float:
    """Wall seconds of one start."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 1), "low": round(min(values), 1), "high": round(max(values), 1)}


def show(figures: dict[str, dict[str, float]]) -> None:
    table = Table("figure", "median", "low", "high")
    for name, figure in figures.items():
        table.add_row(name, *(str(figure[key]) for key in ("median", "low", "high")))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
