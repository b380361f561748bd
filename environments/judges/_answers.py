"""Answers of a text judge: scored, averaged, and written to a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from environments.judges import Misbehaved
from environments.judges._questions import Question
from environments.judges._talk import Completed
from environments.judges._taskset import Taskset
from environments.score import Score

FILE = "answers.jsonl"


def rewards(taskset: Taskset, drawn: Sequence[Question], made: Sequence[Completed]) -> list[list[float]]:
    """The reward of each completion, by question; empty where there are no completions.

    Raises:
        Misbehaved: a reward cannot be computed, or averaged with others.
    """
    asked = [(question.place, text) for question, one in zip(drawn, made, strict=True) for text in one.texts]
    scored = iter(taskset.rewards(asked))
    return [[next(scored) for _ in one.texts] for one in made]


def averaged(
    drawn: Sequence[Question], rewards: Sequence[Sequence[float]], weights: Mapping[str, float], higher_is_better: bool
) -> Score:
    """The score of these questions; each unit is the mean over a question's completions."""
    units = [math.fsum(some) / len(some) for some in rewards]
    if not weights:
        return Score.of(units, higher_is_better)
    by_source = {
        source: [unit for unit, question in zip(units, drawn, strict=True) if question.source == source]
        for source in sorted(weights)
    }
    return Score.of_sources(by_source, weights, higher_is_better)


def refuse_failures(drawn: Sequence[Question], made: Sequence[Completed]) -> None:
    """Refuse to score if some questions were not completed: the mean over the others would be another measure.

    Raises:
        Misbehaved: how many, and why the first was not.
    """
    failed = [(question, one.error) for question, one in zip(drawn, made, strict=True) if one.error]
    if failed:
        question, reason = failed[0]
        raise Misbehaved(
            f"{len(failed)} of {len(made)} questions could not be completed, the first ({question.id}): {reason}"
        )


def store(
    path: Path, drawn: Sequence[Question], kinds: Mapping[str, tuple[Sequence[Completed], Sequence[Sequence[float]]]]
) -> None:
    """Write the completions of each question under each kind of sampling, one per line; replaces an old file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW  # the folder may belong to a program, too
    with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
        for at, question in enumerate(drawn):
            record: dict[str, object] = {"question": question.id}
            record |= {"source": question.source} if question.source else {}
            for kind, (made, rewards) in kinds.items():
                record[kind] = _record(made[at], rewards[at])
            file.write(json.dumps(record) + "\n")
    temporary.replace(path)


def _record(made: Completed, rewards: Sequence[float]) -> dict[str, object]:
    if made.error:
        return {"error": made.error}
    return {
        "completions": list(made.texts), "rewards": list(rewards), "tokens": made.tokens, "truncated": made.truncated,
    }  # fmt: skip
