"""Texts of any kind: one written against its reader is read or refused, a diff makes what it says, an answer stays in bounds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import environments
from environments import Environment
from tasks.editing.edits import EditFailed, apply_edit, changed, diff_of, patched
from tasks.llm.answers import ANSWER_LIMIT, Misread, headed, ideas
from tasks.proposing.brief import Brief
from tasks.proposing.validation import meaning
from tests.support.toy import quadratic

PROGRAM = {"train.py": "x = 1\nx = 2\nimprove(x)\n"}
ENGINE_SECONDS = 1.0
"""Of the engine's own processor time, for all that becomes of one text: it only hands it on."""
HEAD = "--- a/train.py\n+++ b/train.py\n"
CLASSES = [f"class {name}{i}(A{i - 1}, B{i - 1}): pass" for i in range(1, 45) for name in "AB"]
PROGRAMS = {
    "an exponential graph of classes": "\n".join(["class A0: pass", "class B0: pass", *CLASSES, "improve(0)\n"]),
    "deep nesting": f"x = {'(' * 90_000}0{')' * 90_000}\n",
    "a long f-string": f"x = 1\ny = f'{'{x}' * 60_000}'\n",
    "a constant": "x = 9**9**9\n",
    "a lone surrogate": "x = 1\n\ud800\n",
}
DIFFS = {
    "hunks in one place": HEAD + "@@ -1,1 +1,1 @@\n-x = 1\n+x = 1\n" * 8_000,
    "ambiguous context": HEAD + "@@ -8000,8001 +1,8000 @@\n" + " \n" * 8_000 + "-x\n",
    "files": "".join(f"--- /dev/null\n+++ b/f{i}.py\n@@ -0,0 +1 @@\n+x\n" for i in range(8_000)),
}
ANSWERS = {
    "nested arrays in a header": f'{{"rationale": "x", "params": {{"x": {"[" * 100_000}}}}}\n',
    "thoughts": "<think>" * 40_000 + "rationale",
    "beginnings of a block": "<<<<<<< SEARCH\n" * 40_000,
    **{
        piece: (piece * ANSWER_LIMIT)[:ANSWER_LIMIT]
        for piece in ('{"params":', "```\n", '{"rationale": 1}\n', "</think>\n")
    },
    "unknown parameters": json.dumps({"rationale": "x", "params": {f"p{n}": 1 for n in range(30_000)}}),
    "proposals that are none": json.dumps({"proposals": [1] * 150_000}),
    "names of files": "train.py " * 40_000 + "\n```\nx\n```\n",
}


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    problem = environments.load(quadratic(tmp_path_factory.mktemp("environment") / "quad"))
    return problem.model_copy(update={"editable": ("train.py", "net.py"), "required_calls": ("improve",)})


Reading = tuple[Callable[[], object], type[Exception]]


def of_a_program(text: str, place: Path, problem: Environment) -> Iterator[Reading]:
    yield lambda: meaning({"train.py": text}), EditFailed
    with suppress(EditFailed):
        yield from of_a_diff(diff_of(PROGRAM, {"train.py": text}), place, problem)


def of_a_diff(text: str, place: Path, problem: Environment) -> Iterator[Reading]:
    yield lambda: changed(text, PROGRAM, ["train.py"]), EditFailed
    yield lambda: patched(PROGRAM, text), EditFailed
    yield lambda: apply_edit(place, text, problem), EditFailed


def of_an_answer(text: str, place: Path, problem: Environment) -> Iterator[Reading]:
    brief = Brief(problem.space, (), problem=problem)
    yield lambda: ideas(text, brief), Misread
    yield lambda: headed(text, brief), Misread
    yield lambda: changed(text, PROGRAM, ["train.py"]), EditFailed


@pytest.mark.parametrize(
    ("readings", "text"),
    [(of, text) for of, texts in ((of_a_program, PROGRAMS), (of_a_diff, DIFFS), (of_an_answer, ANSWERS)) for text in texts.values()],
    ids=[*PROGRAMS, *DIFFS, *ANSWERS],
)  # fmt: skip
def test_a_hostile_text_is_read_or_refused_and_never_by_the_engine(
    tmp_path: Path, problem: Environment, readings: Callable[[str, Path, Environment], Iterator[Reading]], text: str
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM["train.py"])
    began = time.thread_time()
    for reading, refused in readings(text, tmp_path, problem):
        with suppress(refused):
            reading()
    assert time.thread_time() - began < ENGINE_SECONDS


# Property tests


ODD = [
    *("", "x", " x", "x ", "\tx", "y", "y = 1", "def f():", "\x0c", "\x1c", "\x85", "\u2028", "\ufeff"),
    *("-- a", "++ b", "--- a/q", "+++ b/q", "@@ -1 +1 @@", "diff --git a/x b/x", "index 1..2", "```", "\u00e9"),
    *("\\ No newline at end of file", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "train.py"),
]
LINE = st.sampled_from(ODD) | st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=8)
LINES = st.lists(LINE, max_size=12)
END = st.sampled_from(["", "\n"])
TEXT = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, END)
NAMES = st.sampled_from(["train.py", "my net.py", "lib/\u00e9.py", 'q"t.py', "tab\there.py", "back\\slash", "a/b/c"])
TEXTS = st.dictionaries(NAMES, TEXT, max_size=3)


@settings(derandomize=True, max_examples=30, deadline=None)
@example({"train.py": "a\r\nb\r\n"}, {"train.py": "a\r\nb\nc\r"})
@example({"train.py": "\n\n"}, {"train.py": "x\n\n\n"})
@given(TEXTS, TEXTS)
def test_a_diff_between_any_texts_makes_the_one_into_the_other(before: dict[str, str], after: dict[str, str]) -> None:
    shown = diff_of(before, after)
    assert patched(before, shown) == after
    assert bool(shown) == (before != after)
    assert shown == diff_of(before, after)
