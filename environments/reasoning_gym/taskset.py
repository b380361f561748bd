"""Reward of a data set of reasoning-gym: its own scorer decides, in training and in the judge."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import reasoning_gym

TAGS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
scorer = lru_cache(reasoning_gym.get_score_answer_fn)


def reward(question: str, completion: str, answer: str, dataset: str, metadata: dict[str, Any]) -> float:
    """The scorer's reward, 1 for a right answer; a partial one less, by the data set."""
    entry = {"question": question, "answer": answer, "metadata": metadata}
    return float(scorer(dataset)(given(completion, answer), entry))


def given(completion: str, answer: str) -> str:
    """The last answer in <answer> tags; without any the last number, where a number is wanted, else the last line."""
    if tagged := TAGS.findall(completion):
        return str(tagged[-1]).strip()
    if NUMBER.fullmatch(answer):
        return next(reversed(NUMBER.findall(completion)), "").replace(",", "")
    return completion.strip().rpartition("\n")[2].strip(" .")
