"""Small real environments for the tests: a folder each, with programs that end within a moment."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.sandbox.isolation import Isolation, choose

SANDBOX = Isolation(choose("auto"))
"""The strongest sandbox that this machine has."""

FIT = """\
import argparse, json, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--out", type=pathlib.Path)
args = parser.parse_args()
(args.out / "model.json").write_text(json.dumps({"x": args.x}))
"""
"""A deterministic trainer: its model is its parameter."""

GREEDY = ("--rule", "greedy")
"""For campaigns that are about something else: one run of the baseline, and no certificate at the end."""

JUDGE = """\
import json, pathlib, sys
x = json.loads(pathlib.Path(sys.argv[1], "model.json").read_text())["x"]
pathlib.Path(sys.argv[2]).write_text(json.dumps({"score": (x - 1) ** 2}))
"""

QUADRATIC = """\
title = "Quadratic"
metric = "loss"
direction = "minimize"
trainer = "command"
program = ["fit.py"]
train_cmd = "python fit.py --x {x} --out {out}"
editable = ["fit.py"]
budget_seconds = 5
deterministic = true
allow_untrained = true
startup_seconds = 2
grace_seconds = 0.5
judge = "command"

[command]
eval_cmd = "python judge.py {out} {result}"
total_seconds = 20

[limits]
least_seconds = 0

[space.x]
type = "float"
low = -3.0
high = 3.0
default = 2.5
"""


def stated(*lines: str, toml: str = QUADRATIC) -> str:
    """An environment.toml with these lines: each in place of the one of its key, or at the beginning."""
    for line in lines:
        key = re.compile(rf"^{line.partition(' ')[0]} = .*$", re.MULTILINE)
        toml = key.sub(lambda _, line=line: line, toml) if key.search(toml) else f"{line}\n{toml}"
    return toml


def quadratic(folder: Path, fit: str = FIT, judge: str = JUDGE, toml: str = QUADRATIC) -> Path:
    """Write the environment: minimise (x - 1)^2, the baseline at 2.25."""
    return folder_of(folder, {"environment.toml": toml, "fit.py": fit, "judge.py": judge})


def folder_of(folder: Path, files: Mapping[str, str]) -> Path:
    """A folder with these texts, by their paths in it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def slow(seconds: float) -> str:
    """The same trainer, which takes its time and writes down when it began."""
    return f"import time\ntime.sleep({seconds})\n" + FIT


def nightshift(
    *arguments: str, server: str | None = None, seconds: float = 220, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, in a process of its own, for so many seconds at most."""
    return subprocess.run(
        command(*arguments), env=environment(server, **more), capture_output=True, text=True, timeout=seconds
    )


def start(*arguments: str, server: str | None = None, **more: str) -> subprocess.Popen[str]:
    """Start the command and leave it running."""
    return subprocess.Popen(
        command(*arguments),
        env=environment(server, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "flows.cli", *arguments]


def environment(server: str | None, **more: str) -> dict[str, str]:
    return {**os.environ, **({"PREFECT_API_URL": server} if server else {}), **more}


def told(*arguments: str) -> str:
    """Run a verb that neither imports Prefect nor sets anything up, in this process; what it prints."""
    from flows.cli.app import app

    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert app([*arguments], exit_on_error=False, print_error=False, result_action="return_value") == 0
    return shown.getvalue()


def status(name: str) -> dict[str, Any]:
    """`nightshift status NAME --json`."""
    document: dict[str, Any] = json.loads(told("status", name, "--json"))
    return document
