"""Reversing a text, as a verifiers taskset: the answer is the text from its end to its beginning, in tags.

Read from a JSONL file: {"id": "...", "question": "tano bo", "answer": "ob onat"}, a text to a line. Its reward is the
judged reward, and the training reward too: prime-rl trains with this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

__all__ = ["Questions"]

OPEN, CLOSE = "<reversed_text>", "</reversed_text>"
ASKED = f"Reverse the text, character by character. Give the result in {OPEN} tags."


def tagged(reply: str) -> str | None:
    """The text in the last pair of tags, stripped; None where there is no such pair."""
    _, tag, rest = reply.rpartition(OPEN)
    inside, end, _ = rest.partition(CLOSE)
    return inside.strip() if tag and end else None


def is_right(reply: str, answer: str) -> bool:
    """Whether the tagged text of a reply is the answer, sign for sign."""
    return tagged(reply) == answer


class Data(vf.TaskData):
    """A text and its reverse."""

    answer: str


class Question(vf.Task[Data]):
    """One text."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(is_right(trace.last_reply, self.data.answer))


class Config(vf.TasksetConfig):
    """The file with the texts."""

    path: str = ""


class Questions(vf.Taskset[Question, Config]):
    """The texts of one file, in its order."""

    def load(self) -> Iterator[Question]:
        with Path(self.config.path).open() as lines:
            for row in map(json.loads, lines):
                prompt, answer = row["question"], row["answer"]
                data = Data(id=row["id"], prompt=prompt, system_prompt=ASKED, answer=answer)
                yield Question(data, self.config.task)
