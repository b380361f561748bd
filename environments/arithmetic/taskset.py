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


def is_right(reply: str, answer: str) -> bool:
    """Whether a reply ends with "=" and the right number, 07 for 7 or not. What comes before does not count."""
    at = reply.rfind("=")
    total = TOTAL.fullmatch(reply[at:]) if at >= 0 else None
    return total is not None and int(total[1]) == int(answer)


class Data(vf.TaskData):
    """A question and its total."""

    answer: str


class Sum(vf.Task[Data]):
    """One question."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(is_right(trace.last_reply, self.data.answer))


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
