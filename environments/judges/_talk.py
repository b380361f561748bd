"""What the text judge and its generator say to each other: lines of JSON, as `_generate.py` describes them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from environments.judges import Candidate, Misbehaved

LINE_BYTES = 64 * 1024
TOKEN_BYTES = 256
"""Of the text of a token, on average, at most: no tokenizer that was made to save tokens has longer ones."""
END_SECONDS = 180.0
"""How long a server may take to end and free its memory."""
LONGEST_REASON = 500


@dataclass(frozen=True)
class Completed:
    """What was made of one prompt, or why nothing was."""

    texts: tuple[str, ...] = ()
    tokens: int = 0
    """Of all texts together."""
    truncated: int = 0
    """How many texts were cut at the most tokens that they may have."""
    error: str = ""


class Talk:
    """The generator at the other end of the pipe, under a deadline for each answer and one for everything."""

    def __init__(self, candidate: Candidate, answer_seconds: float, ends: float) -> None:
        """`ends` is when everything must be done, on the monotonic clock."""
        self._candidate = candidate
        self._answer_seconds = answer_seconds
        self._ends = ends

    def start(self, how: Mapping[str, Any], seconds: float) -> None:
        """Say how to work, and wait until the model can be asked."""
        where = "before it was ready"
        self._send(how, seconds, where)
        answer = self._receive(LINE_BYTES, seconds, where)
        if answer.get("ready") is not True:
            raise Misbehaved(f"the generator answered {_short(answer)} before it was ready")

    def ask(
        self, prompts: list[Any], samples: int, temperature: float, max_tokens: int, seed: int
    ) -> list[Completed]:
        """What is made of each prompt, in their order."""
        request = {
            "prompts": prompts, "samples": samples, "temperature": temperature, "max_tokens": max_tokens, "seed": seed,
            "seconds": max(self._ends - time.monotonic(), 0.0),
        }  # fmt: skip
        self._send(request, self._answer_seconds, f"after 0 of {len(prompts)} answers")
        limit = LINE_BYTES + samples * max_tokens * TOKEN_BYTES
        made: dict[int, Completed] = {}
        while len(made) < len(prompts):
            where = f"after {len(made)} of {len(prompts)} answers"
            answer = self._receive(limit, self._answer_seconds, where)
            index, completed = _completed(answer, samples, max_tokens)
            if not 0 <= index < len(prompts) or index in made:
                raise Misbehaved(
                    f"the generator answered prompt {index} {where}: it was not asked, or answered before"
                )
            made[index] = completed
        return [made[index] for index in range(len(prompts))]

    def end(self) -> None:
        """Have everything ended, and make sure that it has said nothing more than it was asked."""
        self._ends = max(self._ends, time.monotonic() + END_SECONDS)
        where = "at its end"
        self._send({"end": True}, END_SECONDS, where)
        answer = self._receive(LINE_BYTES, END_SECONDS, where)
        if answer.get("finished") is not True:
            raise Misbehaved(f"the generator answered more than it was asked: {_short(answer)}")

    def _send(self, told: Mapping[str, Any], seconds: float, where: str) -> None:
        try:
            self._candidate.send(json.dumps(told).encode() + b"\n", self._at_most(seconds))
        except Misbehaved as wrong:
            raise Misbehaved(f"{where}: {wrong}") from wrong

    def _receive(self, limit: int, seconds: float, where: str) -> dict[str, Any]:
        try:
            line = self._candidate.receive_line(limit, self._at_most(seconds))
        except Misbehaved as wrong:
            raise Misbehaved(f"{where}: {wrong}") from wrong
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise Misbehaved(
                f"the generator answered {_short(line.decode(errors='replace'))} {where}, not an object"
            )
        if "failed" in answer:
            raise Misbehaved(_plain(str(answer["failed"])))
        return answer

    def _at_most(self, seconds: float) -> float:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise Misbehaved("out of time")
        return min(seconds, left)


def _completed(answer: dict[str, Any], samples: int, max_tokens: int) -> tuple[int, Completed]:
    """The answer to one prompt, and which prompt it is."""
    try:
        index = int(answer["index"])
        if "error" in answer:
            return index, Completed(error=_plain(str(answer["error"])))
        made, tokens = answer["completions"], int(answer["tokens"])
        # Half characters, which no file and no library takes, become question marks.
        texts = tuple(one["text"].encode(errors="replace").decode() for one in made)
        truncated = sum(one["truncated"] is True for one in made)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as wrong:
        raise Misbehaved(f"the generator answered {_short(answer)}, which is no completion") from wrong
    if len(texts) != samples:
        raise Misbehaved(
            f"the generator made {len(texts)} completions of prompt {index}, asked for {samples}"
        )
    if not 0 <= tokens <= samples * max_tokens:
        raise Misbehaved(
            f"the generator made {tokens} tokens of prompt {index}, at most {samples * max_tokens} are asked for"
        )
    return index, Completed(texts, tokens, truncated)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _plain(text: str) -> str:
    """A reason on one line, of characters that can be shown."""
    words = " ".join(text.split())
    return "".join(letter for letter in words if letter.isprintable())[:LONGEST_REASON]
