"""Traces of requests and answers, beside the trial as `asked/01.json`, `02.json` ...: without secrets, in their order.

An answer is read again when the very same request comes once more, as after a kill, so it is not paid for twice.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from tasks.system.files import write_atomic
from tasks.system.redact import without_passwords
from tasks.trial import Usage

FOLDER = "asked"


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class RecordedRequest:
    """A request as far as it decides the answer."""

    model: str
    base_url: str | None
    messages: tuple[Message, ...]
    temperature: float | None
    max_output_tokens: int
    turn: int
    """The number of refused suggestions for this trial."""
    seed: int
    """The brief's: under another one the same messages are asked anew."""

    @property
    def digest(self) -> str:
        plain = TypeAdapter(RecordedRequest).dump_python(self, mode="json")
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Answer:
    """The answer of a language model, without its thoughts."""

    text: str
    usage: Usage
    model: str
    """The account's."""
    finish: str
    """The reason of its end; `length`: cut off at the limit of output tokens."""
    fault: str = ""
    """Why it is no answer; empty when it is one."""
    thoughts: str = ""
    """What it thought; kept for people, and never sent back."""


@dataclass(frozen=True)
class Trace:
    """A file of the folder."""

    digest: str
    request: RecordedRequest
    answer: Answer | None
    error: str
    """The reason of a missing answer; empty when there is one."""
    usage: Usage
    seconds: float


TRACE = TypeAdapter(Trace)


def recorded(folder: Path | None) -> list[Trace]:
    """The traces of a trial, in their order."""
    paths = sorted((folder / FOLDER).glob("*.json")) if folder else ()
    return [TRACE.validate_json(path.read_bytes()) for path in paths]


def recorded_answer(folder: Path | None, request: RecordedRequest) -> Answer | None:
    """The answer that this request has had at this folder; None when it has had none."""
    answers = [trace.answer for trace in recorded(folder) if trace.digest == request.digest]
    # One from which a secret was taken is not as it came.
    return next((answer for answer in answers if answer and "[secret" not in answer.text), None)


def keep(
    folder: Path | None, request: RecordedRequest, answer: Answer | None, error: str, usage: Usage, seconds: float
) -> None:
    """Write a request and how it ended; nothing where nothing is kept."""
    if folder is not None:
        trace = Trace(request.digest, request, answer, error, usage, round(seconds, 3))
        number = len(list((folder / FOLDER).glob("*.json"))) + 1
        text = json.dumps(TRACE.dump_python(trace, mode="json"), indent=2, ensure_ascii=False)
        write_atomic(folder / FOLDER / f"{number:02d}.json", without_passwords(text) + "\n")
