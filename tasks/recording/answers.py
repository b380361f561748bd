"""Answers of the champion and of the baseline to the same questions, read from what the text judge has kept.

Only questions of the search set are read, whose scores proposers see. Those of the confirm and report sets are not:
whoever shows one to a proposer has spent it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from environments import judge_name
from environments.judges import _questions
from environments.judges._answers import FILE
from tasks.store.ledger import Ledger
from tasks.store.safe_read import open_below
from tasks.store.workspace import TrialDir
from tasks.system.redact import capped
from tasks.trial import Trial

CHARACTERS = 4000
"""Of a text that are kept."""


class AnsweredQuestion(NamedTuple):
    """A question with the answers of both."""

    question: str
    expected: str
    baseline: str
    champion: str


class AnswerComparison(NamedTuple):
    """The questions that both answered."""

    asked: int
    won: tuple[AnsweredQuestion, ...]
    """Those that the champion answers better, in the order of the baseline's first run."""
    lost: tuple[AnsweredQuestion, ...]


def compared(ledger: Ledger, first: Trial, champion: Trial) -> AnswerComparison | str | None:
    """The likeliest answers of both, or why there are none to compare; None where the judge asks no questions."""
    environment = ledger.environment
    if judge_name(environment.judge) != "text":
        return None
    if environment.prepared is None:
        return "the environment has no prepared questions here"
    theirs, mine = (_answers(ledger, trial) for trial in (first, champion))
    if not theirs or not mine:
        return f"the answers of trial {champion.number if theirs else 0} are not there any more: were they pruned?"
    pool = {row.get("id"): row for row in _rows(_questions.pool_file(environment.prepared, "search"))}
    sign, both = 1 if environment.higher_is_better else -1, []
    for name in [name for name in theirs if name in mine and name in pool]:
        (before, reward), (after, later) = theirs[name], mine[name]
        asked = (_text(pool[name].get("question", "")), _text(pool[name].get("answer", "")))
        both.append((sign * (later - reward), AnsweredQuestion(*asked, before, after)))
    if not both:
        return "none of the questions that both answered is among those of the search set that are prepared here"
    won, lost = (tuple(one for gain, one in both if side * gain > 0) for side in (1, -1))
    return AnswerComparison(len(both), won, lost)


def _answers(ledger: Ledger, trial: Trial) -> dict[str, tuple[str, float]]:
    """Likeliest answer and its reward of each question of a trial's runs in the search, by the question's id."""
    found: dict[str, tuple[str, float]] = {}
    for run in trial.runs:
        for row in _rows(TrialDir(ledger.path / run.dir).judged / FILE):
            with suppress(TypeError, ValueError, KeyError, IndexError):  # a program may have written anything
                made = row["greedy"]
                found.setdefault(str(row["question"]), (_text(made["completions"][0]), float(made["rewards"][0])))
    return found


def _text(value: object) -> str:
    return capped(value if isinstance(value, str) else json.dumps(value), CHARACTERS)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file of JSON lines; none where it is missing. What does not parse is left out."""
    if (file := open_below(path.parent, path.name)) is None:
        return
    with file:
        for line in file:
            with suppress(ValueError, RecursionError):
                if isinstance(row := json.loads(line), dict):
                    yield row
