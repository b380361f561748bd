"""The taskset of a text judge, in its own process (`_scoring.py`).

A reward that never ends ends that process, and gives no score. All judgements of this process share one, since
verifiers takes seconds to import.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("_scoring.py")
LOAD_SECONDS = 300.0
"""How long a taskset may take to load, with verifiers, on a busy machine."""
LOOK_SECONDS = 0.2
"""Interval of checks whether the process is alive."""
TOO_LATE = 1
"""Exit status if something takes too long."""


class Taskset:
    """The questions of one pool, and the rewards of their completions."""

    def __init__(
        self, file: Path, pool: Path, ids: Sequence[str], seconds: float, ends: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Args:
        file: A module that exports one taskset, whose config has a `path`.
        pool: The file of questions, given to it as `path`.
        ids: The ids of the questions in that file, in order.
        seconds: Time limit of one reward.
        ends: The total deadline, on the monotonic clock.
        check: Called while it waits; raises where it is to end.
        """
        self._file, self._ids, self._seconds, self._limits = file, ids, seconds, _Limits(ends, check)
        self._about = {"taskset": str(file), "pool": str(pool), "ids": list(ids), "load_seconds": LOAD_SECONDS}
        self._known: dict[tuple[int, str], float] = {}

    def prompts(self, places: Sequence[int]) -> list[list[dict[str, str]]]:
        """The prompts of the questions in those lines, as chat messages.

        Raises:
            ValueError: the file has no taskset of these questions, or one of them is not made of text.
        """
        asked = {**self._about, "places": list(places)}
        (told,) = _talk(asked, [f"loading {self._file.name}"], f"took more than {LOAD_SECONDS:g} s", self._limits)
        prompts: list[list[dict[str, str]]] = told["prompts"]
        return prompts

    def rewards(self, answered: Iterable[tuple[int, str]]) -> list[float]:
        """The reward of each completion of the question in that line, in order; equal ones are scored once.

        Raises:
            ValueError: a reward cannot be computed, takes too long, or is not finite.
        """
        pairs = list(answered)
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if new:
            what = [f"the reward of question {self._ids[place]}" for place, _ in new]
            asked = {**self._about, "answered": new, "seconds": self._seconds}
            late = f"took more than {self._seconds:g} s: raise [text] reward_seconds, or have it end"
            told = _talk(asked, what, late, self._limits)
            self._known |= {pair: float(one["reward"]) for pair, one in zip(new, told, strict=True)}
        return [self._known[pair] for pair in pairs]


@dataclass(frozen=True)
class _Limits:
    """How long an answer is waited for."""

    ends: float
    check: Callable[[], None]


class _Ended(Exception):
    """The process has ended, with its status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Process:
    """`_scoring.py` as a process. It ends with its standard input, and so with this process, however that ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-B", str(PROGRAM)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is for the engine, which ends it
        )  # fmt: skip
        self._held = b""

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def send(self, told: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # noticed when a reply is due
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, limits: _Limits) -> dict[str, Any]:
        """Its next reply.

        Raises:
            _Ended: there is none to come.
            ValueError: the total deadline has passed.
        """
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._held:
            limits.check()
            ended = not self.runs
            if select.select([pipe], [], [], 0.0 if ended else LOOK_SECONDS)[0]:
                if not (more := os.read(pipe, 2**16)):
                    raise _Ended(self._process.wait())
                self._held += more
            elif ended:  # and a process that it has started keeps the pipe open
                raise _Ended(self._process.wait())
            elif time.monotonic() > limits.ends:
                raise ValueError("out of time")
        line, _, self._held = self._held.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def end(self) -> None:
        """End it and the processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError), self._process:  # closes the pipes
            pass


_one_at_a_time = threading.Lock()
_running: list[_Process] = []
"""The shared process, once it is started."""


@contextlib.contextmanager
def _turn(limits: _Limits) -> Iterator[_Limits]:
    """Wait for the shared process; the limits without that wait, which is the time of others' judgements."""
    came = time.monotonic()
    while not _one_at_a_time.acquire(timeout=LOOK_SECONDS):
        limits.check()
    try:
        yield replace(limits, ends=limits.ends + time.monotonic() - came)
    finally:
        _one_at_a_time.release()


def _talk(request: dict[str, Any], what: Sequence[str], late: str, limits: _Limits) -> list[dict[str, Any]]:
    """A reply for each of `what` (at least one); `late` is the message if one takes too long.

    Raises:
        ValueError: one failed, took too long, or ended the process.
    """
    with _turn(limits) as own:
        if _running and not _running[0].runs:
            _running.pop().end()
        if not _running:
            _running.append(_Process())
        replies: list[dict[str, Any]] = []
        try:
            _running[0].send(request)
            for _ in what:
                replies.append(_running[0].receive(own))
                if "wrong" in replies[-1]:
                    break
        except BaseException as fault:
            _running.pop().end()  # otherwise a late reply would be taken for the next one
            if not isinstance(fault, _Ended):
                raise
            ended = f"ended the process that computes it, with status {fault.status}"
            raise ValueError(f"{what[len(replies)]} {late if fault.status == TOO_LATE else ended}") from fault
        if "last" in replies[-1]:
            _running.pop().end()
            raise ValueError(f"{what[len(replies) - 1]} failed ({replies[-1]['wrong']})")
    if "wrong" in replies[-1]:
        raise ValueError(replies[-1]["wrong"])
    return replies
