"""A Prefect work pool with two process workers on this machine, for benchmarks: docs/work-pools.md, in one block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

CHECKOUT = Path(__file__).parents[1]
LAUNCH = "gpu-pair"
"""The deployment of docker/gpu.prefect.yaml for process workers, and its pool."""
FLOW_RUN = "PREFECT__FLOW_RUN_ID"
"""In the environment of what a worker starts."""
WORKERS = 2
GOODBYE_SECONDS = 60.0
"""How long a flow run may go on after its results are there: it tells the server."""


class Workers:
    """The workers of the pool, while they run."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self.processes = processes

    def left_running(self) -> int:
        """Flow runs of the workers that are alive, once they had time to end."""
        deadline = time.monotonic() + GOODBYE_SECONDS
        while (alive := self._children()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return alive

    def _children(self) -> int:
        found = 0
        for process in self.processes:
            for child in psutil.Process(process.pid).children():
                with suppress(psutil.Error):
                    found += child.status() != psutil.STATUS_ZOMBIE and FLOW_RUN in child.environ()
        return found


@contextmanager
def working(folder: Path, at_once: int) -> Iterator[Workers]:
    """The pool at the server of PREFECT_API_URL, with workers that take so many runs at once, all together.

    Each has a home of its own, as on another machine.
    """
    prefect("work-pool", "create", LAUNCH, "--type", "process")
    prefect("deploy", "--prefect-file", "docker/gpu.prefect.yaml", "--name", LAUNCH)
    limits = [at_once // WORKERS + (number < at_once % WORKERS) for number in range(WORKERS)]
    with ExitStack() as stack:
        named = [(f"worker-{number}", limit) for number, limit in enumerate(limits) if limit]
        yield Workers([stack.enter_context(worker(folder / name, limit)) for name, limit in named])


@contextmanager
def worker(folder: Path, limit: int) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(parents=True)
    own = {"NIGHTSHIFT_HOME": str(folder / "runs"), "PREFECT_HOME": str(folder / ".prefect")}
    start = ("worker", "start", "--pool", LAUNCH, "--limit", str(limit), "--name", folder.name)
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", *start, "--install-policy", "never"],
            cwd=folder, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def prefect(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments], cwd=CHECKOUT, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"prefect {' '.join(arguments)}: {(done.stdout + done.stderr)[-2000:]}")
