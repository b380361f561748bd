"""GSM8K as a verifiers taskset: math-verify, which verifiers brings, compares the boxed answer.

Read from a JSONL file: {"id": "...", "question": "...", "answer": "18"}, a question a line. `prompt` and `reward` are
the judge's, and training's too: prime-rl trains with this file, and so does the trainer grpo where `program` lists it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from math_verify import parse, verify
from math_verify.errors import TimeoutException

__all__ = ["Questions"]

SYSTEM = "Work the problem out step by step. End with the answer, a number without its unit, in \\boxed{}."
LONGEST = 500
"""Characters of a boxed answer; a longer one is wrong."""
SECONDS = 2
"""For one comparison: of towers of powers none comes to an end."""
BOX = re.compile(r"\\boxed\s*\{")


def prompt(question: str) -> list[dict[str, str]]:
    """The messages for the model's chat template."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def reward(question: str, completion: str, answer: str) -> float:
    """1 if the box of a completion holds the answer, else 0."""
    given = boxed(completion)
    if not given or len(given) > LONGEST:
        return 0.0
    try:
        held, wanted = (parse(f"\\boxed{{{text}}}", parsing_timeout=SECONDS) for text in (given, answer))
        return float(verify(wanted, held, timeout_seconds=SECONDS))
    except (Exception, TimeoutException):  # noqa: BLE001 (whatever a model writes)
        return 0.0


def boxed(text: str) -> str:
    """The content of the last \\boxed{} of a completion; empty where there is none, or it is not closed."""
    begins = [box.end() for box in BOX.finditer(text)]
    depth, begin = 1, begins[-1] if begins else len(text)
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at].strip(" .\n")
    return ""


class Data(vf.TaskData):
    """A question and its answer."""

    answer: str


class Question(vf.Task[Data]):
    """One problem."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return reward(str(self.data.prompt), trace.last_reply, self.data.answer)


class Config(vf.TasksetConfig):
    """The file with the questions."""

    path: str = ""


class Questions(vf.Taskset[Question, Config]):
    """The questions of one file, in its order."""

    def load(self) -> Iterator[Question]:
        with Path(self.config.path).open() as lines:
            for row in map(json.loads, lines):
                data = Data(id=row["id"], prompt=row["question"], system_prompt=SYSTEM, answer=row["answer"])
                yield Question(data, self.config.task)
