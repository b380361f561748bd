"""GSM8K, alone or with MATH, as a verifiers taskset: a question's `source` says how its boxed answer is compared.

Read from a JSONL file: {"id": "...", "question": "...", "answer": "18", "source": "gsm8k"}, a question to a line;
without a source all are GSM8K's. Answers of `gsm8k` are numbers, compared by value. Those of `math` are LaTeX: numbers
and quotients are compared by value, lists part by part, everything else as normalised text. Answers that are equal only
by algebra, such as 2(x+1) and 2x+2, count as wrong: no algebra system is asked. Its reward is the judged reward, and
the training reward too: prime-rl trains with this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import verifiers.v1 as vf

__all__ = ["Questions"]

ASKED = "Work the problem out step by step. End with the answer, without its unit, in \\boxed{}."
ASKED_FOR_A_NUMBER = ASKED.replace("the answer, without", "the answer, a number without")
"""Where every answer is a number."""
LONGEST = 500
"""Characters of a boxed answer; a longer one is wrong."""
BOX = re.compile(r"\\boxed\s*\{")
NUMBER = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|-?\.[0-9]+")
FRACTION = re.compile(r"(-?)\\[dtc]?frac\{(-?[0-9]+)\}\{(-?[0-9]+)\}")
QUOTIENT = re.compile(r"(-?[0-9]+)\s*/\s*([0-9]+)")
WORDS = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\{([^{}]*)\}")
SIGNS = re.compile(r"\\[$%;: ]|[$%~\u20ac\u00a3]")
"""Signs of money and per cent, and spaces, as LaTeX writes them."""

WRITTEN = tuple(
    (re.compile(pattern), made)
    for pattern, made in (
        (r"\\[!,;: ]|\\q?quad(?![a-zA-Z])|~|\{,\}(?=[0-9]{3})", lambda found: "," if found[0] == "{,}" else ""),
        (r"\\(?:left|right|displaystyle)(?![a-zA-Z])", ""),
        (r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![a-zA-Z])|\\?[$%]", ""),
        (r"\\[dtc]frac", r"\\frac"),
        (r"\\(le|ge|ne)q(?![a-zA-Z])", r"\\\1"),
        (r"\\times(?![a-zA-Z])", r"\\cdot"),
        (r"(?<=[^\s(\[{,])\s*\\(?:text|textrm|mathrm|mbox)\{[^{}]*\}(?:\^\{?[0-9]\}?)?\s*$", ""),  # a unit, last
        (r"\\(?:text|textrm|textbf|mathrm|mathbf|mbox)\{([^{}]*)\}", r"\1"),
        (r"\\frac\s*([0-9a-z])", r"\\frac{\1}"),
        (r"\\frac(\{[^{}]*\})\s*([0-9a-z])", r"\\frac\1{\2}"),
        (r"\\sqrt\s*([0-9a-z])", r"\\sqrt{\1}"),
        (r"([\^_])\{([^{}\\])\}", r"\1\2"),
        (r"^\s*[a-zA-Z]\s*(?:=|\\in(?![a-zA-Z]))", ""),  # x = 5, or x \in (1, 2)
        (r"\s+", ""),
        (r"\.$", ""),
        (r"^\(([A-Z])\)$", r"\1"),
        (r"^(-?)([^-+/(),]+)/([^-+/(),]+)$", r"\1\\frac{\2}{\3}"),
        (r"^\\frac\{-", r"-\\frac{"),
    )
)
"""The normalisation of LaTeX, one step after the other: a pattern and its replacement."""
DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
MIXED = re.compile(r"(-?)([0-9]*)\\frac\{([0-9]+)\}\{([0-9]+)\}")
BRACKETS = {"(": ")", "[": "]", "{": "}"}


def boxed(text: str) -> str | None:
    """The content of the last \\boxed{} of a reply; None where there is none, or it is not closed."""
    begins = [box.end() for box in BOX.finditer(text)]
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


def written(text: str) -> str:
    """LaTeX, normalised: equal answers are mostly written alike."""
    text = text.replace("\u2212", "-").strip()
    for pattern, made in WRITTEN:
        text = pattern.sub(made, text)
    return text


def value(text: str) -> Fraction | None:
    """The number that a normalised text is; None where it is something else."""
    if THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if DECIMAL.fullmatch(text):
        return Fraction(text)
    found = MIXED.fullmatch(text)
    if not found or int(found[4]) == 0:
        return None
    size = int(found[2] or 0) + Fraction(int(found[3]), int(found[4]))
    return -size if found[1] else size


def parts(text: str) -> tuple[str, list[str]]:
    """The brackets around a list, and its items; a set and a bare list have no order.

    `(1,2)` is "()" of two parts, `\\{1,2\\}` and `1,2` are "" of two, and anything else is "" of one.
    """
    if text.startswith("\\{") and text.endswith("\\}"):
        return "", _between_commas(text[2:-2])
    inside = _between_commas(text[1:-1])
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and len(text) > 1 and len(inside) > 1:
        return text[0] + text[-1], inside
    return "", _between_commas(text)


def _between_commas(text: str) -> list[str]:
    """The parts of a text between those commas that no bracket holds."""
    found, depth = [""], 0
    for sign in text:
        depth += (sign in BRACKETS) - (sign in BRACKETS.values())
        if sign == "," and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return found


def alike(a: str, b: str) -> bool:
    """Whether two normalised texts are the same answer."""
    if a == b or (a.isalpha() and len(a) > 1 and a.casefold() == b.casefold()):
        return True
    if (number_a := value(a)) is not None:
        return number_a == value(b)
    (kind, here), (other, there) = parts(a), parts(b)
    if kind != other or len(here) != len(there) or (not kind and len(here) == 1 and not a.startswith("\\{")):
        return False
    if kind:
        return all(map(alike, here, there))
    for part in here:
        if (match := next((one for one in there if alike(part, one)), None)) is None:
            return False
        there.remove(match)
    return True


def is_right(reply: str, answer: str, source: str = "gsm8k") -> bool:
    """Whether a reply's box holds the answer."""
    given = boxed(reply)
    if given is None or not given.strip() or len(given) > LONGEST:
        return False
    if source == "gsm8k":
        return (found := number(given)) is not None and found == number(answer)
    return alike(written(given), written(answer))


class Data(vf.TaskData):
    """A question, its answer and its dataset."""

    answer: str
    source: str


class Question(vf.Task[Data]):
    """One problem."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(is_right(trace.last_reply, self.data.answer, self.data.source))


class Config(vf.TasksetConfig):
    """The file with the questions."""

    path: str = ""


class Questions(vf.Taskset[Question, Config]):
    """The questions of one file, in its order."""

    def load(self) -> Iterator[Question]:
        with Path(self.config.path).open() as lines:
            for row in map(json.loads, lines):
                asked = ASKED if "source" in row else ASKED_FOR_A_NUMBER
                data = Data(
                    id=row["id"], prompt=row["question"], system_prompt=asked, answer=row["answer"],
                    source=row.get("source", "gsm8k"),
                )  # fmt: skip
                yield Question(data, self.config.task)
