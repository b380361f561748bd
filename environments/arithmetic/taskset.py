"""Sums as a verifiers taskset: "3+7+5+2" or "3+7+5,2+4+1", whose answer is the number after the last "=".

Its reward is the judged reward. The training reward, `reward` in train.py, also takes an answer whose last number is
right without an "=" before it, or with something after it.

Read from a JSONL file: {"id": "...", "question": "3+7+5+2", "answer": "17"}, a question to a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

__all__ = ["Questions"]

TOTAL = re.compile(r"=\s*([0-9]{1,9})\s*")


def prompt(question: str) -> list[dict[str, str]]:
    """The messages for the model's chat template."""
    return [{"role": "user", "content": question}]


def reward(question: str, completion: str, answer: str) -> float:
    """1 if a completion ends with "=" and the right number, 07 for 7 or not, else 0. What is before does not count."""
    at = completion.rfind("=")
    total = TOTAL.fullmatch(completion[at:]) if at >= 0 else None
    return float(total is not None and int(total[1]) == int(answer))


class Data(vf.TaskData):
    """A question and its total."""

    answer: str


class Sum(vf.Task[Data]):
    """One question."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return reward(str(self.data.prompt), trace.last_reply, self.data.answer)


class Config(vf.TasksetConfig):
    """The file with the questions."""

    path: str = ""


class Questions(vf.Taskset[Sum, Config]):
    """The questions of one file, in its order."""

    def load(self) -> Iterator[Sum]:
        with Path(self.config.path).open() as lines:
            for row in map(json.loads, lines):
                data = Data(id=row["id"], prompt=row["question"], answer=row["answer"])
                yield Sum(data, self.config.task)
