"""Traces of requests and answers, beside the trial as `asked/01.json`, `02.json` ...: without secrets, in their order.

An answer is read again when the very same request comes once more, as after a kill, so it is not paid for twice.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tasks.llm.request import Message
from tasks.system.files import write_atomic
from tasks.system.redact import without_passwords
from tasks.trial import NOTHING_BOUGHT, Usage

FOLDER = "asked"
_numbering = threading.Lock()


@dataclass(frozen=True)
class RecordedRequest:
    """A request as far as it decides the answer."""

    model: str
    base_url: str | None
    messages: tuple[Message, ...]
    schema: dict[str, Any] | None
    temperature: float | None
    max_output_tokens: int
    turn: int
    """The number of refused suggestions for this trial."""
    seed: int
    """The brief's: under another one the same messages are asked anew, for an answer of its own."""

    @property
    def digest(self) -> str:
        plain = TypeAdapter(RecordedRequest).dump_python(self, mode="json")
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Attempt:
    """One try, and how it ended."""

    seconds: float
    with_schema: bool
    usage: Usage
    error: str = ""
    """Empty when it was answered."""
    model: str = ""
    """The provider's name of the model that answered."""
    thoughts: str = ""
    """What it thought, where the provider tells that apart; kept for people, and never sent back."""


@dataclass(frozen=True)
class Answer:
    """The answer of a language model."""

    text: str
    usage: Usage
    """Of every try that it took."""
    model: str
    """The account's."""
    finish: str
    """The reason of its end; `length`: cut off at the limit of output tokens."""


@dataclass(frozen=True)
class Trace:
    """A file of the folder."""

    digest: str
    request: RecordedRequest
    attempts: tuple[Attempt, ...]
    answer: Answer | None
    whole: bool
    """Whether the answer stands here as it came: it does not where a secret was taken out."""
    error: str
    """The reason of a missing answer; empty when there is one."""
    usage: Usage
    seconds: float


TRACE = TypeAdapter(Trace)


def answered(folder: Path | None, request: RecordedRequest) -> Answer | None:
    """The answer that this request has had at this folder; None when it has had none."""
    digest = request.digest
    for path in sorted((folder / FOLDER).glob("*.json")) if folder else ():
        trace = TRACE.validate_json(path.read_bytes())
        if trace.digest == digest and trace.answer is not None and trace.whole:
            return trace.answer
    return None


def keep(
    folder: Path | None, request: RecordedRequest, attempts: tuple[Attempt, ...], answer: Answer | None, error: str
) -> None:
    """Write a request and how it ended; nothing where nothing is kept."""
    if folder is None:
        return
    whole = answer is not None and without_passwords(answer.text) == answer.text
    usage = sum((attempt.usage for attempt in attempts), NOTHING_BOUGHT)
    seconds = sum(attempt.seconds for attempt in attempts)
    trace = Trace(request.digest, request, attempts, answer, whole, error, usage, seconds)
    text = json.dumps(TRACE.dump_python(trace, mode="json"), indent=2, ensure_ascii=False)
    with _numbering:
        taken = [int(path.stem) for path in (folder / FOLDER).glob("*.json") if path.stem.isdecimal()]
        path = folder / FOLDER / f"{max(taken, default=0) + 1:02d}.json"
        write_atomic(path, without_passwords(text) + "\n")
