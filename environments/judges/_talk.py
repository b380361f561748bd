"""The text judge's connection to its generator: lines of JSON, as described in `_generate.py`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from environments.judges import Candidate, Misbehaved

LINE_BYTES = 64 * 1024
TOKEN_BYTES = 256
"""Most bytes of text per token, on average: no real tokenizer has longer tokens."""
END_SECONDS = 30.0
"""How long a server may take to end."""
LONGEST_REASON = 500
T = TypeVar("T")


@dataclass(frozen=True)
class Completed:
    """The completions of one prompt, or why there are none."""

    texts: tuple[str, ...] = ()
    tokens: int = 0
    """Of all completions."""
    truncated: int = 0
    """Number of completions that were cut at the token limit."""
    error: str = ""


class Talk:
    """The connection to the generator, with a deadline per answer and one in total."""

    def __init__(self, candidate: Candidate, answer_seconds: float, ends: float) -> None:
        """`ends`: the total deadline, on the monotonic clock."""
        self._candidate, self._answer_seconds, self._ends = candidate, answer_seconds, ends
        self._where = "before it was ready"

    def start(self, how: Mapping[str, Any]) -> None:
        """Send the settings: it begins to load the model."""
        self._send(how)

    def wait_until_ready(self, seconds: float) -> None:
        if self._receive(LINE_BYTES, seconds).get("ready") is not True:
            raise Misbehaved("the generator did not say that it is ready")

    def ask(self, prompts: list[Any], samples: int, temperature: float, max_tokens: int, seed: int) -> list[Completed]:
        """The completions of each prompt, in order."""
        request = {
            "prompts": prompts, "samples": samples, "temperature": temperature, "max_tokens": max_tokens, "seed": seed,
        }  # fmt: skip
        made: dict[int, Completed] = {}
        self._send(request)
        while len(made) < len(prompts):
            self._where = f"after {len(made)} of {len(prompts)} answers"
            answer = self._receive(LINE_BYTES + samples * max_tokens * TOKEN_BYTES, self._answer_seconds)
            try:
                index, completed = int(answer["index"]), _completed(answer)
            except (LookupError, TypeError, ValueError, AttributeError) as wrong:
                raise Misbehaved(f"{self._where}: the generator answered in another form") from wrong
            if index in made or not (0 <= index < len(prompts) and len(completed.texts) in (0, samples)):
                raise Misbehaved(f"{self._where}: the generator answered what it was not asked, prompt {index}")
            made[index] = completed
        return [made[index] for index in range(len(prompts))]

    def end(self) -> None:
        self._ends = max(self._ends, time.monotonic() + END_SECONDS)
        self._where = "at its end"
        self._send({"end": True})
        self._receive(LINE_BYTES, END_SECONDS)

    def _send(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        self._in_time(partial(self._candidate.send, line), self._answer_seconds)

    def _receive(self, limit: int, seconds: float) -> dict[str, Any]:
        line = self._in_time(partial(self._candidate.receive_line, limit), seconds)
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            text = _plain(line.decode(errors="replace"))
            raise Misbehaved(f"{self._where}: the generator answered no object: {text}")
        if "failed" in answer:
            raise Misbehaved(_plain(str(answer["failed"])))
        return answer

    def _in_time(self, does: Callable[[float], T], seconds: float) -> T:
        try:
            if (left := self._ends - time.monotonic()) <= 0:
                raise Misbehaved("out of time")
            return does(min(seconds, left))
        except Misbehaved as wrong:
            raise Misbehaved(f"{self._where}: {wrong}") from wrong


def _completed(answer: dict[str, Any]) -> Completed:
    if "error" in answer:
        return Completed(error=_plain(str(answer["error"])) or "no reason")
    # Half characters become question marks: no file and no library takes them.
    texts = tuple(one["text"].encode(errors="replace").decode() for one in answer["completions"])
    return Completed(texts, int(answer["tokens"]), sum(one["truncated"] is True for one in answer["completions"]))


def _plain(text: str) -> str:
    """A reason on one line, in printable characters."""
    words = " ".join(text.split())
    return "".join(letter for letter in words if letter.isprintable())[:LONGEST_REASON]
