"""GSM8K as a verifiers taskset: a problem in words, whose answer is one number in \\boxed{}.

Read from a JSONL file: {"id": "...", "question": "...", "answer": "18"}, a question to a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import verifiers.v1 as vf

__all__ = ["Questions"]

ASKED = "Work the problem out step by step. End with the answer, a number without its unit, in \\boxed{}."
LONGEST = 200
"""Characters of a boxed answer that are looked at; a longer one is no number."""
BOX = re.compile(r"\\boxed\s*\{")
NUMBER = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|-?\.[0-9]+")
FRACTION = re.compile(r"(-?)\\[dtc]?frac\{(-?[0-9]+)\}\{(-?[0-9]+)\}")
QUOTIENT = re.compile(r"(-?[0-9]+)\s*/\s*([0-9]+)")
WORDS = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\{([^{}]*)\}")
SIGNS = re.compile(r"\\[$%;: ]|[$%~\u20ac\u00a3]")
"""Of money and per cent, and spaces, as LaTeX writes them."""


def boxed(text: str) -> str | None:
    """What the last \\boxed{} of an answer holds; None where there is none, or it is not closed."""
    begins = [found.end() for found in BOX.finditer(text)]
    if not begins:
        return None
    depth, begin = 1, begins[-1]
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at]
    return None


def number(text: str) -> Fraction | None:
    """The one number that a text gives, words around it or not; None where it gives none, or several."""
    if len(text) > LONGEST:
        return None
    text = text.replace("\u2212", "-").replace("{,}", ",").replace("\\,", "").replace("\\!", "")
    text = SIGNS.sub(" ", WORDS.sub(r"\1", text.rpartition("=")[2]))
    for form in (FRACTION, QUOTIENT):
        if found := form.search(text):
            *sign, above, below = found.groups()
            if NUMBER.search(text[: found.start()] + " " + text[found.end() :]) or int(below) == 0:
                return None
            return Fraction(int(above), int(below)) * (-1 if sign == ["-"] else 1)
    found_all = NUMBER.findall(re.sub(r"-\s+", "-", text))
    return Fraction(found_all[0].replace(",", "")) if len(found_all) == 1 else None


def is_right(reply: str, answer: str) -> bool:
    """Whether the boxed number of a reply is the answer, by value."""
    given = boxed(reply)
    value = number(given) if given is not None else None
    return value is not None and value == number(answer)


class Data(vf.TaskData):
    """A question and its answer."""

    answer: str


class Question(vf.Task[Data]):
    """One problem."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(is_right(trace.last_reply, self.data.answer))


class Config(vf.TasksetConfig):
    """Where the questions are."""

    path: str = ""


class Questions(vf.Taskset[Question, Config]):
    """The questions of one file, in its order."""

    def load(self) -> Iterator[Question]:
        with Path(self.config.path).open() as lines:
            for row in map(json.loads, lines):
                prompt, answer = row["question"], row["answer"]
                data = Data(id=row["id"], prompt=prompt, system_prompt=ASKED, answer=answer)
                yield Question(data, self.config.task)
