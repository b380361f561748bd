"""Answers of a text judge: scored, averaged, and written to a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environments.judges import Misbehaved
from environments.judges._questions import Question
from environments.judges._talk import Completed
from environments.judges._taskset import Taskset
from environments.score import Score

FILE = "answers.jsonl"


@dataclass(frozen=True)
class Answers:
    """What was answered to some questions under one kind of sampling, and the reward of each completion."""

    questions: Sequence[Question]
    completed: Sequence[Completed]
    rewards: Sequence[Sequence[float]]

    @classmethod
    def scored(cls, taskset: Taskset, questions: Sequence[Question], completed: Sequence[Completed]) -> Answers:
        """Raises Misbehaved: a reward cannot be computed."""
        pairs = [
            (question.place, text) for question, one in zip(questions, completed, strict=True) for text in one.texts
        ]
        rewards = iter(taskset.rewards(pairs))
        return cls(questions, completed, [[next(rewards) for _ in one.texts] for one in completed])

    @property
    def failures(self) -> str:
        """How many questions could not be completed, and why the first was not; empty if all were.

        The mean over the others would be another measure.
        """
        failed = [
            (question, one.error) for question, one in zip(self.questions, self.completed, strict=True) if one.error
        ]
        if not failed:
            return ""
        many = f"{len(failed)} of {len(self.questions)} questions could not be completed"
        return f"{many}, the first ({failed[0][0].id}): {failed[0][1]}"

    def score(self, weights: Mapping[str, float], higher_is_better: bool) -> Score:
        """The score of these questions; each unit is the mean over a question's completions.

        Raises Misbehaved: some have none.
        """
        if self.failures:
            raise Misbehaved(self.failures)
        units = [math.fsum(some) / len(some) for some in self.rewards]
        if not weights:
            return Score.of(units, higher_is_better)
        by_source = {
            source: [unit for unit, question in zip(units, self.questions, strict=True) if question.source == source]
            for source in sorted(weights)
        }
        return Score.of_sources(by_source, weights, higher_is_better)


def store(path: Path, kinds: Mapping[str, Answers]) -> None:
    """Write each question with what was answered to it, by kind of sampling, one per line; replaces an old file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW  # the folder may belong to a program, too
    questions = next(iter(kinds.values())).questions
    with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
        for at, question in enumerate(questions):
            row: dict[str, object] = {"question": question.id, "text": question.text, "expected": question.answer}
            row |= {"source": question.source} if question.source else {}
            row |= {kind: _record(answers.completed[at], answers.rewards[at]) for kind, answers in kinds.items()}
            file.write(json.dumps(row) + "\n")
    temporary.replace(path)


def _record(completed: Completed, rewards: Sequence[float]) -> dict[str, object]:
    if completed.error:
        return {"error": completed.error}
    return {
        "completions": list(completed.texts), "rewards": list(rewards), "tokens": completed.tokens,
        "truncated": completed.truncated,
    }  # fmt: skip
