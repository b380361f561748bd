"""Reversing a text, as a verifiers taskset: the answer is the text from its end to its beginning, in tags.

Read from a JSONL file: {"id": "...", "question": "tano bo", "answer": "ob onat"}, a line each. `prompt` and `reward`
are the judge's, and training's too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

__all__ = ["Questions"]

OPEN, CLOSE = "<reversed_text>", "</reversed_text>"
SYSTEM = f"Reverse the text, character by character. Give the result in {OPEN} tags."


def prompt(question: str) -> list[dict[str, str]]:
    """The messages for the model's chat template."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def reward(question: str, completion: str, answer: str) -> float:
    """1 if the text in the last pair of tags is the answer, sign for sign, else 0."""
    _, tag, rest = completion.rpartition(OPEN)
    inside, end, _ = rest.partition(CLOSE)
    return float(bool(tag and end) and inside.strip() == answer)


class Data(vf.TaskData):
    """A text and its reverse."""

    answer: str


class Question(vf.Task[Data]):
    """One text."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return reward(str(self.data.prompt), trace.last_reply, self.data.answer)


class Config(vf.TasksetConfig):
    """The file with the texts."""

    path: str = ""


class Questions(vf.Taskset[Question, Config]):
    """The texts of one file, in its order."""

    def load(self) -> Iterator[Question]:
        with Path(self.config.path).open() as lines:
            for row in map(json.loads, lines):
                data = Data(id=row["id"], prompt=row["question"], system_prompt=SYSTEM, answer=row["answer"])
                yield Question(data, self.config.task)
