"""Texts written against their readers: each is read or refused with a reason, and the engine never parses one itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import environments
from environments import Environment
from tasks.editing.edits import EditFailed, apply_edit, diff_of, patched
from tasks.formats import NoEdit
from tasks.llm.answers import Misread, changed, headed, ideas
from tasks.proposing.validation import meaning
from tests.support.hostile_texts import HostileText, all_of_them
from tests.support.toy import quadratic

PROGRAM = {"train.py": "x = 1\nx = 2\nimprove(x)\n"}
PLACES = {"python": "train.py", "toml": "train.toml", "json": "params.json"}
ENGINE_SECONDS = 1.0
"""Of the engine's own processor time, for all that becomes of one text: it only hands it on."""
ALL = all_of_them()
FEW = (
    "an exponential graph of 45 classes", "90000 times '('", "a lone surrogate", "coding utf-7",
    "8000 hunks in one place", "8000 files", "a table twice", "900 nested tables", "100000 nested arrays",
    "not a number, in a header", "40000 beginnings of a block",
)  # fmt: skip
"""Some of them, each of another kind; none that takes seconds to read."""


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    problem = environments.load(quadratic(tmp_path_factory.mktemp("environment") / "quad"))
    editable = (*PLACES.values(), "net.py")
    return problem.model_copy(update={"editable": editable, "required_calls": ("improve",)})


def readings(
    text: HostileText, place: Path, problem: Environment
) -> Iterator[tuple[Callable[[], object], type[Exception]]]:
    """All that the engine does with a text, and the exception that refuses it."""
    if text.kind == "answer":
        yield lambda: ideas(text.text, problem.space, {}), Misread
        yield lambda: headed(text.text, ["train.py"], problem.space, {}), Misread
        yield lambda: changed(text.text, PROGRAM, ["train.py"]), NoEdit
        return
    diff = text.text
    if text.kind == "diff":
        yield lambda: changed(diff, PROGRAM, ["train.py"]), NoEdit
    else:
        name = PLACES[text.kind]
        yield lambda: meaning({name: text.text}), EditFailed
        yield lambda: diff_of(PROGRAM, {**PROGRAM, name: text.text}), EditFailed
        try:
            diff = diff_of(PROGRAM, {**PROGRAM, name: text.text})
        except EditFailed:
            return
    yield lambda: patched(PROGRAM, diff), EditFailed
    yield lambda: apply_edit(place, diff, problem), EditFailed


def check(text: HostileText, place: Path, problem: Environment) -> None:
    (place / "train.py").write_text(PROGRAM["train.py"])
    began = time.process_time()
    for reading, refused in readings(text, place, problem):
        with suppress(refused):
            reading()
    assert time.process_time() - began < ENGINE_SECONDS


@pytest.mark.parametrize("name", FEW)
def test_a_hostile_text_is_read_or_refused_and_never_by_the_engine(
    tmp_path: Path, problem: Environment, name: str
) -> None:
    for text in (each for each in ALL if each.name == name):
        check(text, tmp_path, problem)


@pytest.mark.slow
@pytest.mark.parametrize("text", ALL, ids=[f"{number}" for number, _ in enumerate(ALL)])
def test_every_hostile_text_is_read_or_refused(tmp_path: Path, problem: Environment, text: HostileText) -> None:
    check(text, tmp_path, problem)
