"""GSM8K, alone or with MATH, as a verifiers taskset: math-verify, which verifiers brings, compares the boxed answer.

Read from a JSONL file: {"id": "...", "question": "...", "answer": "18", "source": "gsm8k"}, a question to a line;
without a source all are GSM8K's. Its reward is the judged reward, and the training reward too: prime-rl trains with
this file.
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

ASKED = "Work the problem out step by step. End with the answer, without its unit, in \\boxed{}."
ASKED_FOR_A_NUMBER = ASKED.replace("the answer, without", "the answer, a number without")
"""Where every answer is a number."""
LONGEST = 500
"""Characters of a boxed answer; a longer one is wrong."""
SECONDS = 2
"""For one comparison: of towers of powers none comes to an end."""
BOX = re.compile(r"\\boxed\s*\{")


def boxed(text: str) -> str:
    """The content of the last \\boxed{} of a reply; empty where there is none, or it is not closed."""
    begins = [box.end() for box in BOX.finditer(text)]
    depth, begin = 1, begins[-1] if begins else len(text)
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at].strip(" .\n")
    return ""


def is_right(reply: str, answer: str) -> bool:
    """Whether a reply's box holds the answer."""
    given = boxed(reply)
    if not given or len(given) > LONGEST:
        return False
    try:
        held, wanted = (parse(f"\\boxed{{{text}}}", parsing_timeout=SECONDS) for text in (given, answer))
        return bool(verify(wanted, held, timeout_seconds=SECONDS))
    except (Exception, TimeoutException):  # noqa: BLE001 (whatever a model writes)
        return False


class Data(vf.TaskData):
    """A question and its answer."""

    answer: str


class Question(vf.Task[Data]):
    """One problem."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(is_right(trace.last_reply, self.data.answer))


class Config(vf.TasksetConfig):
    """The file with the questions."""

    path: str = ""


class Questions(vf.Taskset[Question, Config]):
    """The questions of one file, in its order."""

    def load(self) -> Iterator[Question]:
        with Path(self.config.path).open() as lines:
            for row in map(json.loads, lines):
                asked = ASKED if "source" in row else ASKED_FOR_A_NUMBER
                data = Data(id=row["id"], prompt=row["question"], system_prompt=asked, answer=row["answer"])
                yield Question(data, self.config.task)
