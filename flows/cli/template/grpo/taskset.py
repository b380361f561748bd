"""The judge's questions as a verifiers taskset. Its reward is the judged one: here, the last number of the answer.

`reward` in train.py is what training pays itself: give both the same prompt and the same idea of a right answer.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

__all__ = ["Questions"]


class Data(vf.TaskData):
    answer: str


class Question(vf.Task[Data]):
    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        numbers = re.findall(r"\d+", trace.last_reply)
        return float(bool(numbers) and int(numbers[-1]) == int(self.data.answer))


class Config(vf.TasksetConfig):
    path: str = ""


class Questions(vf.Taskset[Question, Config]):
    def load(self) -> Iterator[Question]:
        with Path(self.config.path).open() as lines:
            for row in map(json.loads, lines):
                yield Question(Data(id=row["id"], prompt=row["question"], answer=row["answer"]), self.config.task)
