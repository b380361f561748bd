"""Reward of a data set of reasoning-gym: its own scorer decides, in training and in the judge."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import reasoning_gym

TAGS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def reward(question: str, completion: str, answer: str, dataset: str, metadata: dict[str, Any]) -> float:
    """The scorer's reward, 1 for a right answer; a partial one less, by the data set."""
    return float(
        scorer(dataset)(given(completion, answer), {"question": question, "answer": answer, "metadata": metadata})
    )


def given(completion: str, answer: str) -> str:
    """The last answer in <answer> tags; without any the last number, where a number is wanted, else the last line."""
    if tagged := TAGS.findall(completion):
        return str(tagged[-1]).strip()
    if NUMBER.fullmatch(answer):
        return next(reversed(NUMBER.findall(completion)), "")
    return completion.strip().rpartition("\n")[2].strip(" .")


@lru_cache
def scorer(dataset: str) -> Callable[[str, dict[str, Any]], float]:
    return reasoning_gym.get_score_answer_fn(dataset)  # type: ignore[no-any-return]
