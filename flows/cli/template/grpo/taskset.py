"""Prompt and reward, of training, its curve and the judge alike. Here an answer is right if its last number is."""

import re


def prompt(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def reward(question: str, completion: str, answer: str) -> float:
    numbers = re.findall(r"\d+(?:,\d{3})*", completion)
    return float(bool(numbers) and int(numbers[-1].replace(",", "")) == int(answer))
