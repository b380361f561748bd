"""The protocol between the control judge and the program: one line each way, then frames and answers."""

from __future__ import annotations

import json
import time

from environments.judges import Candidate, Misbehaved

_LINE_BYTES = 64 * 1024
_SILENCE_SECONDS = 0.05
_READY = '{"ready": true}'


class Conversation:
    """The connection to the program, with a deadline per answer and one in total."""

    def __init__(self, candidate: Candidate, answer_seconds: float, total_seconds: float) -> None:
        self._candidate = candidate
        self._answer_seconds = answer_seconds
        self._total_seconds = total_seconds
        self._ends = time.monotonic() + total_seconds
        self._asked = 0

    def greet(self, hello: bytes, seconds: float) -> None:
        try:
            self._candidate.send(hello, self._at_most(seconds))
            line = self._candidate.receive_line(_LINE_BYTES, self._at_most(seconds))
        except Misbehaved as error:
            raise self._blame("handshake", error) from error
        if not _is_ready(line):
            raise Misbehaved(f"handshake: answered {_quote(line)} instead of {_READY}")

    def ask(self, frame: bytes, size: int) -> bytes:
        """The answer of `size` bytes to the next frame."""
        self._asked += 1
        try:
            self._candidate.send(frame, self._at_most(self._answer_seconds))
            return self._candidate.receive(size, self._at_most(self._answer_seconds))
        except Misbehaved as error:
            raise self._blame(f"step {self._asked}", error) from error

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
