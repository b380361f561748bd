"""Reversing a text: the answer is the text backwards, in tags. Judge and training ask and pay by this file."""

from __future__ import annotations

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
