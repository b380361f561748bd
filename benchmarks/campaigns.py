"""Real campaigns and single runs for benchmarks: the command itself in a home that stays, and rows of a CSV file.

Whatever has ended is kept: a campaign in its home, which `nightshift run --name` resumes or reads, and each figure as a
row of a CSV file, which is not measured again. So a benchmark of hours may be interrupted and called again.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import socket
import subprocess
import sys
import time
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter

CHECKOUT = Path(__file__).parents[1]
HOMES = CHECKOUT / "runs" / "benchmarks"
"""Homes of the benchmarks that last for hours."""
RESULTS = Path(__file__).parent / "results"
FOREIGN = ("PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_TRACKING_URI")
"""Ways to somebody's real servers."""
LOGIN = "PREFECT_API_AUTH_STRING"
INTERRUPTED = 130
WITHOUT_END = 100_000
"""Trials that no campaign comes to: its clock ends it."""
FRESH_SEEDS = 1_000_000
"""From here on, far from the seeds of the campaigns."""
Row = TypeVar("Row")


class CommandFailed(RuntimeError):
    """A command was refused, died, or left a campaign without final figures."""


def nightshift(home: str | Path, *arguments: str) -> dict[str, Any]:
    """The JSON document that a command prints; `--json` is among its arguments.

    Raises:
        KeyboardInterrupt: it was interrupted, and can be resumed.
        CommandFailed: it was refused or died, and has said why.
    """
    command = [sys.executable, "-m", "flows.cli", *arguments]
    with subprocess.Popen(command, env=surroundings(home), stdout=subprocess.PIPE) as process:
        try:
            output, _ = process.communicate()
        except KeyboardInterrupt:
            process.terminate()  # so that it ends its programs and its server first, and can be resumed
            process.communicate()
            raise
    if process.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if process.returncode not in (0, 1):  # 1: a campaign or a try without a score, which is a document too
        raise CommandFailed(f"nightshift {' '.join(arguments)}: exit code {process.returncode}")
    try:
        document: dict[str, Any] = json.loads(output)
    except ValueError as wrong:
        raise CommandFailed(f"nightshift {' '.join(arguments)}: exit code {process.returncode}, no result") from wrong
    return document


def surroundings(home: str | Path) -> dict[str, str]:
    """The environment of a command that uses servers of its own in that home."""
    kept = {name: value for name, value in os.environ.items() if name not in (*FOREIGN, LOGIN)}
    return kept | {"NIGHTSHIFT_HOME": str(home)}


def campaign(home: str | Path, *arguments: str) -> dict[str, Any]:
    """Run or resume a campaign to its end: its document of `nightshift status --json`.

    Raises:
        CommandFailed: it was stopped or interrupted, so that no figure is final.
    """
    document = nightshift(home, "run", *arguments, "--trust", "--json")
    if document["state"] not in ("finished", "failed"):
        raise CommandFailed(f"{document['campaign']} is {document['state']}: {document['reason']}")
    return document


class Rows(Generic[Row]):
    """The rows of a dataclass of plain values in a CSV file; one that `add` was given is on the disk.

    Raises:
        SystemExit: the file has other columns; it is left as it is.
        ValidationError: a line cannot be read.
    """

    def __init__(self, path: Path, kind: type[Row]) -> None:
        self._path, self._columns = path, [field.name for field in fields(kind)]  # type: ignore[arg-type]
        self.rows: list[Row] = self._read(kind) if path.exists() and path.stat().st_size else []

    def _read(self, kind: type[Row]) -> list[Row]:
        may_miss = {name for name, hint in get_type_hints(kind).items() if type(None) in get_args(hint)}
        with self._path.open(newline="") as file:
            lines = csv.DictReader(file)
            if lines.fieldnames != self._columns:
                sys.exit(f"{self._path} has other columns than {', '.join(self._columns)}: name another place")
            rows = [
                {name: None if name in may_miss and not text else text for name, text in line.items()} for line in lines
            ]
        return TypeAdapter(list[kind]).validate_python(rows)  # type: ignore[valid-type]

    def add(self, *rows: Row) -> None:
        """Add rows that belong together: a kill leaves all of them or none."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        if not self._path.exists() or not self._path.stat().st_size:
            writer.writeheader()
        writer.writerows(asdict(row) for row in rows)  # type: ignore[call-overload]
        with self._path.open("a", newline="") as file:
            file.write(text.getvalue())
        self.rows += rows


@cache
def machine() -> str:
    """The machine in a few words, for a column."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    return f"{os.cpu_count()} x {model}"


@cache
def commit() -> str:
    """The version of the checkout; marked where files differ from it."""
    described = subprocess.run(
        ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty=+", "--abbrev=8"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return described.stdout.strip() if described.returncode == 0 else "no repository"


def today() -> str:
    return time.strftime("%Y-%m-%d")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
