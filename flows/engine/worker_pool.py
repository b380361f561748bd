"""A crew: several trials at once, each in a thread of its own, and what ends one of them ends them all."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from types import TracebackType
from typing import TypeVar

from tasks.system import interrupt
from tasks.trial import Proposal

T = TypeVar("T")


class Crew:
    """So many hands, that do one trial each; used as a `with` block, which ends when the last of them has ended."""

    def __init__(self, hands: int) -> None:
        self._hands = hands
        self._pool = ThreadPoolExecutor(hands, thread_name_prefix="slot")
        self._busy: dict[Future[None], tuple[int, Proposal]] = {}

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if kind is None:
            self._pool.shutdown()
            return
        with interrupt.asked():  # what still trains would go on for nothing
            self._pool.shutdown(cancel_futures=True)

    @property
    def under_way(self) -> dict[int, Proposal]:
        """The trials that are being done, by number."""
        return dict(self._busy.values())

    @property
    def is_full(self) -> bool:
        return len(self._busy) >= self._hands

    def start(self, work: Callable[[int, Proposal], None], number: int, proposal: Proposal) -> None:
        """Have a trial done."""
        # Prefect's run and settings are variables of the context.
        context = contextvars.copy_context()
        self._busy[self._pool.submit(context.run, work, number, proposal)] = number, proposal

    def wait(self, seconds: float) -> None:
        """Return when a trial has ended, and after so many seconds at the latest; what ended it is raised."""
        if not self._busy:
            interrupt.wait(seconds)
            return
        ended, _ = wait(self._busy, seconds, FIRST_COMPLETED)
        for future in ended:
            del self._busy[future]
        for future in ended:
            future.result()
        interrupt.check()


def side_by_side(work: Callable[..., T], each: Sequence[Sequence[object]], hands: int) -> list[T]:
    """`work` with each of these arguments, so many at a time; its results in their order.

    Raises:
        Whatever one of them raises; then nothing is begun any more, and what is under way is ended.
    """
    if hands == 1:
        return [work(*arguments) for arguments in each]
    with ThreadPoolExecutor(hands, thread_name_prefix="slot") as pool:
        calls = [partial(contextvars.copy_context().run, work, *arguments) for arguments in each]
        futures = [pool.submit(call) for call in calls]
        try:
            for ended in wait(futures, return_when=FIRST_EXCEPTION).done:
                ended.result()  # of what went wrong, before those that still run are waited for
            return [future.result() for future in futures]
        except BaseException:
            with interrupt.asked():
                pool.shutdown(cancel_futures=True)
            raise
