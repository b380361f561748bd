"""Sums, "3+7+5+2", whose answer is the number after the last "=": as the judge asks and pays.

The training reward, `reward` in train.py, also takes an answer whose last number is right without an "=" before it, or
with something after it.
"""

from __future__ import annotations

import re

TOTAL = re.compile(r"=\s*([0-9]{1,9})\s*")


def reward(question: str, completion: str, answer: str) -> float:
    """1 if a completion ends with "=" and the right number, 07 for 7 or not, else 0. What is before does not count."""
    at = completion.rfind("=")
    total = TOTAL.fullmatch(completion[at:]) if at >= 0 else None
    return float(total is not None and int(total[1]) == int(answer))
