"""The text judge's connection to its generator: lines of JSON, as described in `_generate.py`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from environments.judges import Candidate, Misbehaved

LINE_BYTES = 64 * 1024
TOKEN_BYTES = 256
"""Most bytes of text per token, on average: no real tokenizer has longer tokens."""
END_SECONDS = 30.0
"""How long a server may take to end."""
LONGEST_REASON = 500


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
        self._candidate = candidate
        self._answer_seconds = answer_seconds
        self._ends = ends
        self._where = "before it was ready"

    def start(self, how: Mapping[str, Any]) -> None:
        """Send the settings, with which it begins to load the model."""
        self._send(how)

    def wait_until_ready(self, seconds: float) -> None:
        """Wait until the model is loaded."""
        answer = self._receive(LINE_BYTES, seconds)
        if answer.get("ready") is not True:
            raise Misbehaved(f"the generator answered {_short(answer)} {self._where}")

    def ask(self, prompts: list[Any], samples: int, temperature: float, max_tokens: int, seed: int) -> list[Completed]:
        """The completions of each prompt, in order."""
        request = {
            "prompts": prompts, "samples": samples, "temperature": temperature, "max_tokens": max_tokens, "seed": seed,
        }  # fmt: skip
        made: dict[int, Completed] = {}
        self._where = f"after 0 of {len(prompts)} answers"
        self._send(request)
        while len(made) < len(prompts):
            self._where = f"after {len(made)} of {len(prompts)} answers"
            answer = self._receive(LINE_BYTES + samples * max_tokens * TOKEN_BYTES, self._answer_seconds)
            index, completed = _completed(answer, samples)
            if not 0 <= index < len(prompts) or index in made:
                raise Misbehaved(f"the generator answered prompt {index} {self._where}, which it was not asked now")
            made[index] = completed
        return [made[index] for index in range(len(prompts))]

    def end(self) -> None:
        """Have the generator end, and what it has started."""
        self._ends = max(self._ends, time.monotonic() + END_SECONDS)
        self._where = "at its end"
        self._send({"end": True})
        self._receive(LINE_BYTES, END_SECONDS)

    def _send(self, told: Mapping[str, Any]) -> None:
        try:
            self._candidate.send(json.dumps(told).encode() + b"\n", self._at_most(self._answer_seconds))
        except Misbehaved as wrong:
            raise Misbehaved(f"{self._where}: {wrong}") from wrong

    def _receive(self, limit: int, seconds: float) -> dict[str, Any]:
        try:
            line = self._candidate.receive_line(limit, self._at_most(seconds))
        except Misbehaved as wrong:
            raise Misbehaved(f"{self._where}: {wrong}") from wrong
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            said = _short(line.decode(errors="replace"))
            raise Misbehaved(f"the generator answered {said} {self._where}, not an object")
        if "failed" in answer:
            raise Misbehaved(_plain(str(answer["failed"])))
        return answer

    def _at_most(self, seconds: float) -> float:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise Misbehaved("out of time")
        return min(seconds, left)


def _completed(answer: dict[str, Any], samples: int) -> tuple[int, Completed]:
    """The answer to one prompt, with the prompt's index."""
    try:
        index = int(answer["index"])
        if "error" in answer:
            return index, Completed(error=_plain(str(answer["error"])))
        # Half characters become question marks: no file and no library takes them.
        texts = tuple(one["text"].encode(errors="replace").decode() for one in answer["completions"])
        truncated = sum(one["truncated"] is True for one in answer["completions"])
        tokens = int(answer["tokens"])
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as wrong:
        raise Misbehaved(f"the generator answered {_short(answer)}, which is no completion") from wrong
    if len(texts) != samples:
        raise Misbehaved(f"the generator made {len(texts)} completions of prompt {index}, asked for {samples}")
    return index, Completed(texts, tokens, truncated)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _plain(text: str) -> str:
    """A reason on one line, in printable characters."""
    words = " ".join(text.split())
    return "".join(letter for letter in words if letter.isprintable())[:LONGEST_REASON]
