"""The protocol between the control judge and the program: one line each way, then frames and answers."""

from __future__ import annotations

import json
import time

from environments.effort import Allowance, Effort
from environments.judges import Candidate, Misbehaved

_LINE_BYTES = 64 * 1024
_SILENCE_SECONDS = 0.05
_READY = '{"ready": true}'


class Conversation:
    """The connection to the program, with a deadline per answer and one in total, within its allowance."""

    def __init__(
        self, candidate: Candidate, answer_seconds: float, total_seconds: float, allowance: Allowance | None = None
    ) -> None:
        self._candidate = candidate
        self._answer_seconds = answer_seconds
        self._total_seconds = total_seconds
        self._ends = time.monotonic() + total_seconds
        self._allowance = allowance
        self._asked = 0
        self._ready = self._ready_wait = self._answer_wait = self._longest_wait = 0.0

    def greet(self, hello: bytes, seconds: float) -> None:
        began = time.monotonic()
        try:
            self._candidate.load(self._at_most(seconds))
            if self._allowance:
                self._candidate.allow(self._allowance.until_ready)
            self._candidate.send(hello, self._at_most(seconds))
            line = self._candidate.receive_line(_LINE_BYTES, self._at_most(seconds))
            self._ready = self._candidate.used()
        except Misbehaved as error:
            raise self._blame("handshake", error) from error
        self._ready_wait = time.monotonic() - began
        if not _is_ready(line):
            raise Misbehaved(f"handshake: answered {_quote(line)} instead of {_READY}")

    def ask(self, frame: bytes, size: int) -> bytes:
        """The answer of `size` bytes to the next frame."""
        self._asked += 1
        began = time.monotonic()
        try:
            if self._allowance:
                self._candidate.allow(self._ready + self._allowance.answering(self._asked))
                self._check_wait(self._allowance.waiting(self._asked))
            self._candidate.send(frame, self._at_most(self._answer_seconds))
            answer = self._candidate.receive(size, self._at_most(self._answer_seconds))
        except Misbehaved as error:
            raise self._blame(f"step {self._asked}", error) from error
        waited = time.monotonic() - began
        self._answer_wait += waited
        self._longest_wait = max(self._longest_wait, waited)
        return answer

    def effort(self) -> Effort:
        """What the program has spent so far.

        Raises:
            Misbehaved: more than it may.
        """
        try:
            answering = self._candidate.used() - self._ready
        except Misbehaved as error:
            raise self._blame(f"step {self._asked}", error) from error
        waits = (self._ready_wait, self._answer_wait, self._longest_wait)
        return Effort(self._ready, answering, self._asked, *(round(wait, 6) for wait in waits))

    def expect_silence(self) -> None:
        """Make sure that nothing follows the last answer: more would mean that answers and frames are out of step.

        How the program exits afterwards does not matter; a library that fails at exit costs no score.
        """
        try:
            self._candidate.receive(1, _SILENCE_SECONDS)
        except Misbehaved:
            return  # nothing came, or the program has ended: silence either way
        raise Misbehaved(
            f"step {self._asked}: wrote more than its answers. Either its frames are too long, "
            "or something prints to standard output"
        )

    def _check_wait(self, most: float) -> None:
        if (waited := self._ready_wait + self._answer_wait) > most:
            raise Misbehaved(f"took {waited:.1f} s for its answers, where {most:.1f} s are allowed")

    def _at_most(self, seconds: float) -> float:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise Misbehaved("out of time")
        return min(seconds, left)

    def _blame(self, when: str, error: Misbehaved) -> Misbehaved:
        """The same error with the moment in front, or the total time if that ran out."""
        if time.monotonic() >= self._ends:
            return Misbehaved(f"{when}: the evaluation was not over after {self._total_seconds:g} s in all")
        return Misbehaved(f"{when}: {error}")


def _is_ready(line: bytes) -> bool:
    try:
        answer: object = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and answer.get("ready") is True


def _quote(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
