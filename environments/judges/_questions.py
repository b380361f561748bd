"""Questions of a text judge: the pools made by a recipe, and the draws from them.

A pool is a file of JSON lines, `{"id": "0123456789abcdef", "question": "...", "answer": "...", "source": "..."}`,
where `source` is in all lines or in none. Judgements of one purpose share a pool. The recipe's check makes sure that
each line is a question, and that none is in two pools or in the training data.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from environments.judges import ComparisonBlock, Use
from environments.recipe import JUDGE
from environments.score import METRIC


@dataclass(frozen=True)
class Question:
    """One line of a pool."""

    id: str
    place: int
    """Its line in the pool, from 0; the taskset makes the prompt of it."""
    source: str = ""
    """Empty if the pool has no sources."""
    text: str = ""
    answer: object = ""
    """The expected one."""


def pool_file(prepared: Path, use: Use) -> Path:
    """The pool for one purpose; `control` uses the search's."""
    return prepared / JUDGE / f"{'search' if use == 'control' else use}.jsonl"


def pool(file: Path) -> tuple[Question, ...]:
    """The questions of a pool, in order.

    Raises ValueError: it is missing, or its sources are no names.
    """
    if not file.is_file():
        raise ValueError(f"{file.name} is missing: the recipe makes it (`nightshift env prepare`)")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    questions = tuple(
        Question(row["id"], at, row.get("source", ""), row["question"], row["answer"]) for at, row in enumerate(rows)
    )
    sources = {question.source for question in questions}
    if "" in sources and len(sources) > 1:
        raise ValueError(f"{file.name} has questions with a source and without: give all of them one, or none")
    for source in sources - {""}:
        if not re.fullmatch(METRIC, source):
            raise ValueError(f"{file.name} has source {source!r}: a name has letters, digits, _ - . space : / @")
    return questions


def share(asked: Sequence[Question], block: ComparisonBlock | None) -> tuple[Question, ...]:
    """The questions of one block: disjoint shares of a pool, equally large up to one, of each source.

    Raises ValueError: there are fewer questions than blocks.
    """
    if block is None:
        return tuple(asked)
    found: list[Question] = []
    for source, own in _by_source(asked, np.random.default_rng(block.of)).items():  # a pool may be ordered by subject
        if len(own) < block.of:
            raise ValueError(f"its pool has {len(own)} questions{_of(source)} for {block.of} blocks: make more of them")
        found += own[block.number - 1 :: block.of]
    return tuple(found)


def evenly(asked: Sequence[Question]) -> int:
    """The most questions that can be asked, equally many of each source."""
    return len({question.source for question in asked}) * rarest(asked)


def rarest(asked: Sequence[Question]) -> int:
    """How many questions the source has that has the fewest."""
    return min(Counter(question.source for question in asked).values())


def draw(asked: Sequence[Question], many: int, seed: np.random.SeedSequence) -> list[Question]:
    """`many` questions of a pool in random order, 0 for all; from several sources equally many, up to one.

    Raises ValueError: there are fewer.
    """
    parts = _by_source(asked, np.random.default_rng(seed))
    if 0 < many < len(parts):
        raise ValueError(f"its pool has {len(parts)} sources, and questions = {many}: ask at least one of each")
    drawn: list[Question] = []
    for at, (source, own) in enumerate(parts.items()):
        share = many // len(parts) + (at < many % len(parts)) if many else len(own)
        if len(own) < share:
            raise ValueError(f"its pool has {len(own)} questions{_of(source)}, and {share} are to be asked")
        drawn += own[:share]
    return drawn


def sources(asked: Iterable[Question], weights: Mapping[str, float]) -> dict[str, float]:
    """The weight of each source of these questions, equal if none are given; empty without sources.

    Raises ValueError: the weights are for other sources.
    """
    found = sorted({question.source for question in asked} - {""})
    if weights and sorted(weights) != found:
        raise ValueError(
            f"its pool has the sources {', '.join(found) or 'none'}, the weights in [text.sources] are for "
            f"{', '.join(sorted(weights))}: give a weight to every source and to nothing else"
        )
    return dict(weights) or dict.fromkeys(found, 1.0)


def _by_source(asked: Sequence[Question], rng: np.random.Generator) -> dict[str, list[Question]]:
    """The questions of each source in random order."""
    shuffled = [asked[index] for index in rng.permutation(len(asked))]
    sources = sorted({question.source for question in asked})
    return {source: [question for question in shuffled if question.source == source] for source in sources}


def _of(source: str) -> str:
    return f" of source {source!r}" if source else ""
