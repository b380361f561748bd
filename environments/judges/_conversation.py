"""The protocol between the control judge and the program: one line each way, then frames and answers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from functools import partial

from environments.judges import Candidate, Misbehaved
from environments.score import Wait

_LINE_BYTES = 64 * 1024
_SILENCE_SECONDS = 0.05
_READY = '{"ready": true}'


class Conversation:
    """The connection to a program that has just started, with a deadline per answer, for all waiting, and in total."""

    def __init__(
        self, candidate: Candidate, answer_seconds: float, total_seconds: float, need: Wait | None = None
    ) -> None:
        self._candidate, self._answer_seconds, self._total_seconds = candidate, answer_seconds, total_seconds
        self._need, self._asked, self._waits_since = need, 0, time.monotonic()
        self._ends = self._waits_since + total_seconds
        self._ready = self._answering = 0.0

    def greet(self, hello: bytes, seconds: float) -> None:
        line = self._exchange(hello, seconds, partial(self._candidate.receive_line, _LINE_BYTES))
        self._ready = time.monotonic() - self._waits_since
        if not _is_ready(line):
            raise Misbehaved(f"handshake: answered {_quote(line)} instead of {_READY}")

    def ask(self, frame: bytes, size: int) -> bytes:
        """The answer of `size` bytes to the next frame."""
        self._asked += 1
        self._waits_since = time.monotonic()
        answer = self._exchange(frame, self._answer_seconds, partial(self._candidate.receive, size))
        self._answering += time.monotonic() - self._waits_since
        return answer

    @property
    def waited(self) -> Wait:
        """For how long the program was waited for until its latest answer."""
        return Wait(round(self._ready, 3), round(self._answering, 6), self._asked)

    def expect_silence(self) -> None:
        """Make sure that nothing follows the last answer: more would mean that answers and frames are out of step."""
        try:
            self._candidate.receive(1, _SILENCE_SECONDS)
        except Misbehaved:
            return  # nothing came, or the program has ended, in whatever way
        raise Misbehaved(
            f"step {self._asked}: wrote more than its answers. Either its frames are too long, "
            "or something prints to standard output"
        )

    def _exchange(self, message: bytes, seconds: float, receive: Callable[[float], bytes]) -> bytes:
        """The answer to a message. Raises Misbehaved with the moment in front, or what ran out."""
        when = f"step {self._asked}" if self._asked else "handshake"
        most = self._need.most(self._asked) if self._need else math.inf
        try:
            self._candidate.send(message, self._at_most(seconds, most))
            return receive(self._at_most(seconds, most))
        except Misbehaved as error:
            why, waited = str(error), self._waited_for()
            if time.monotonic() >= self._ends:
                why = f"the evaluation was not over after {self._total_seconds:g} s in all"
            elif waited >= most:
                why = (
                    f"was waited for {waited:.1f} s in all, and may be for {most:.1f} s, by what the baseline needed "
                    "under judgement: it may play, not train"
                )
            raise Misbehaved(f"{when}: {why}") from error

    def _waited_for(self) -> float:
        return self._ready + self._answering + time.monotonic() - self._waits_since

    def _at_most(self, seconds: float, most: float) -> float:
        left = min(self._ends - time.monotonic(), most - self._waited_for())
        if left <= 0:
            raise Misbehaved("out of time")
        return min(seconds, left)


def _is_ready(line: bytes) -> bool:
    try:
        answer: object = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and answer.get("ready") is True


def _quote(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
