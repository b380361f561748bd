"""Real workers of a pool, Prefect's own commands, and what became of launches."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.toy import environment

CHECKOUT = Path(__file__).parents[2]


def prefect(url: str, *arguments: str, **variables: str) -> None:
    """Run a command of Prefect's own, in the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments], cwd=CHECKOUT, env=environment(url, **variables),
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def launches(campaign: Path, what: str) -> list[dict[str, Any]]:
    """What happened to the launches of a campaign, of one kind."""
    events = campaign / "events.jsonl"
    found = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
    return [one for one in found if one["event"] == "launch" and one["what"] == what]


@contextlib.contextmanager
def working(
    url: str, pool: str, name: str, folder: Path, *more: str, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of a pool, one run at a time, that logs to NAME.log in its folder; asked to end after the block."""
    start = ("worker", "start", "--pool", pool, "--limit", "1", "--name", name, *more)
    quick = environment(url, PREFECT_WORKER_QUERY_SECONDS="1", **variables)
    with (
        (folder / f"{name}.log").open("ab") as log,
        subprocess.Popen(
            [sys.executable, "-m", "prefect", *start], cwd=folder, env=quick, stdout=log, stderr=log,
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)
