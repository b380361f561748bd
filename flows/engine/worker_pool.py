"""A worker pool: several trials at once, one thread each. An exception in one ends them all."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import TypeVar

from tasks.system import interrupt
from tasks.trial import Proposal

T = TypeVar("T")
AHEAD = 4
"""Trials that may wait for the decision on the baseline, besides those at work: a search's first points, which no score
tells, are as many."""


class WorkerPool:
    """Threads that run one trial each. As a `with` block it ends when the last trial has ended."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers + AHEAD, thread_name_prefix="slot")
        self._busy: dict[Future[None], tuple[int, Proposal]] = {}
        self._called_off = threading.Event()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if kind is None:
            self._pool.shutdown()
            return
        with interrupt.asked():  # the remaining trainings would be of no use
            self._pool.shutdown(cancel_futures=True)

    @property
    def under_way(self) -> dict[int, Proposal]:
        """The running trials, by number."""
        return dict(self._busy.values())

    def is_full(self, resting: int = 0) -> bool:
        """Whether no further trial may begin. (resting: trials that only wait, at most AHEAD)"""
        return len(self._busy) - resting >= self._workers

    def start(self, work: Callable[[int, Proposal], None], number: int, proposal: Proposal) -> None:
        """Run a trial in a free worker."""
        # Prefect's run and settings are context variables.
        context = contextvars.copy_context()
        context.run(interrupt.also_by, self._called_off)
        self._busy[self._pool.submit(context.run, work, number, proposal)] = number, proposal

    def wait(self, seconds: float) -> None:
        """Return when a trial has ended, at the latest after `seconds`. Raises the exception that ended it."""
        if not self._busy:
            interrupt.wait(seconds)
            return
        ended, _ = wait(self._busy, seconds, FIRST_COMPLETED)
        for future in ended:
            del self._busy[future]
        for future in ended:
            future.result()
        interrupt.check()

    def call_off(self) -> None:
        """End the running trials, whose results nobody needs. Raises what ended one of them before that."""
        self._called_off.set()
        wait(self._busy)
        self._called_off.clear()
        ended, self._busy = [*self._busy], {}
        interrupt.check()
        for future in ended:
            if not isinstance(future.exception(), KeyboardInterrupt):
                future.result()


def run_in_parallel(work: Callable[..., T], each: Sequence[Sequence[object]], workers: int) -> list[T]:
    """Call `work` with each set of arguments, `workers` at a time; returns the results in order.

    Raises:
        The first exception of a call. No further call is started, and the running ones are stopped.
    """
    if workers == 1:
        return [work(*arguments) for arguments in each]
    called_off = threading.Event()  # of these calls alone: who waits for them is to meet the exception
    with ThreadPoolExecutor(workers, thread_name_prefix="slot") as pool:
        contexts = [contextvars.copy_context() for _ in each]
        for context in contexts:
            context.run(interrupt.also_by, called_off)
        futures = [
            pool.submit(context.run, work, *arguments) for context, arguments in zip(contexts, each, strict=True)
        ]
        try:
            for ended in wait(futures, return_when=FIRST_EXCEPTION).done:
                ended.result()  # the exception first, before waiting for the calls that still run
            return [future.result() for future in futures]
        except BaseException:
            called_off.set()
            pool.shutdown(cancel_futures=True)
            raise
