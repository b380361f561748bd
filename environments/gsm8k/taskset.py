"""GSM8K: math-verify, which verifiers brings, compares the boxed answer. Judge and training use it."""

from __future__ import annotations

import re

from math_verify import parse, verify
from math_verify.errors import TimeoutException

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
