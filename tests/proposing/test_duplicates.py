"""What counts as tried before, and which kinds of ideas were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from environments.space import Choice, Float, Int, Space
from tasks.proposing.duplicates import Category, EarlierProposal, categories, duplicate, meaning
from tasks.trial import History, Params, Value
from tests.support.histories import tried

SPACE: Space = {
    "lr": Float(low=1e-5, high=1e-1, log=True, default=1e-3),
    "gamma": Float(low=0.0, high=1.0, default=0.9),
    "layers": Int(low=1, high=100_000, default=2),
    "act": Choice(values=("tanh", True, 1), default="tanh"),
}
PARAMS: Params = {"lr": 1e-3, "gamma": 0.5, "layers": 20_000, "act": True, "fixed": 3}
PROGRAM = {
    "train.py": '''\
"""The trainer."""
import math

# how fast
def rate(step, total=100):
    """Cosine."""
    return 0.5 * (1 + math.cos(math.pi * step / total))
''',
    "notes.txt": "plain text\n",
}
SAME = '''\
import math
def rate( step,
          total = 1_00 ):  # another comment
    return (0.5*(1 + math.cos(math.pi*step/total)))
    """Said in other words."""
'''


def repeated(params: Params | None = None, files: dict[str, str] | None = None) -> str | None:
    earlier = EarlierProposal(7, PARAMS, PROGRAM, "discarded at -12.3")
    return duplicate(SPACE, {**PARAMS, **(params or {})}, PROGRAM if files is None else files, [earlier])


def test_the_same_again_is_a_duplicate_and_the_sentence_names_the_trial() -> None:
    assert repeated() == (
        "the same as trial 7 (discarded at -12.3): parameters within a thousandth, and a program with the same meaning"
    )


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("lr", 1e-3 * 1.009, True),  # 0.001 * log(1e4) = 0.0092
        ("lr", 1e-3 * 1.010, False),
        ("lr", 1e-3 / 1.009, True),
        ("gamma", 0.5009, True),
        ("gamma", 0.5011, False),
        ("layers", 20_000.0, True),
        ("layers", 20_001, False),
        ("act", 1, False),  # True == 1
        ("act", "tanh", False),
        ("fixed", 4, True),
        ("gamma", 7.0, False),
    ],
)
def test_a_parameter_is_the_same_within_a_thousandth_of_its_own_scale(name: str, value: Value, same: bool) -> None:
    assert (repeated({name: value}) is not None) is same


def test_comments_docstrings_and_formatting_do_not_make_another_program() -> None:
    assert repeated(files={**PROGRAM, "train.py": SAME}) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.5 *", "0.6 *"),
        ("total=100", "total=100.0"),
        ("step, total", "total, step"),
        ("math.cos", "math.sin"),
        ("def rate", "def speed"),
        ("import math\n", "import math\nimport os\n"),
    ],
)
def test_whatever_python_acts_on_makes_another_program(old: str, new: str) -> None:
    text = PROGRAM["train.py"].replace(old, new)
    assert text != PROGRAM["train.py"]
    assert repeated(files={**PROGRAM, "train.py": text}) is None


def test_a_text_that_is_used_is_no_docstring() -> None:
    assert meaning({"a.py": "x = 'one'"}) != meaning({"a.py": "x = 'two'"})
    assert meaning({"a.py": "def f():\n    return 'one'"}) != meaning({"a.py": "def f():\n    'one'"})


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.toml", "x = 1"), ("a.py", "def broken(:"), ("a.py", "-" * 200_000 + "1"), ("a.py", "x = '\0'")],
)
def test_what_is_no_python_counts_with_its_whole_text(name: str, text: str) -> None:
    assert meaning({name: text}) == meaning({name: text})
    assert meaning({name: text}) != meaning({name: text + "\n# and a comment\n"})


def test_the_names_of_files_are_part_of_a_program_and_their_order_is_not() -> None:
    assert meaning({"a.py": "x = 1", "b.py": "y = 1"}) == meaning({"b.py": "y = 1", "a.py": "x = 1"})
    assert meaning({"a.py": "x = 1", "b.py": "y = 1"}) != meaning({"a.py": "y = 1", "b.py": "x = 1"})
    assert meaning({}) != meaning({"a.py": ""})


def test_without_editable_files_only_parameters_are_spoken_of() -> None:
    found = duplicate(SPACE, PARAMS, {}, [EarlierProposal(2, PARAMS, {}, "under way")])
    assert found == "the same as trial 2 (under way): parameters within a thousandth"


def test_a_trial_that_lacks_a_parameter_of_the_space_is_another_point() -> None:
    partly = {name: value for name, value in PARAMS.items() if name != "lr"}
    assert duplicate(SPACE, PARAMS, {}, [EarlierProposal(2, partly, {}, "under way")]) is None


def test_categories_are_counted_under_one_spelling_most_tried_first() -> None:
    history: History = ()
    for value, category in (
        (1.0, "Learning Rate"),
        (2.0, "learning_rate"),
        (0.5, " learning-rate "),
        (9.0, "Network"),
        (3.0, ""),
        (1.0, "learning  rate"),
    ):
        trial = tried(history, value)
        history += (replace(trial, proposal=replace(trial.proposal, category=category)),)
    kinds = [trial.verdict.kind == "keep" for trial in history]
    assert categories(history) == (
        Category("learning rate", 3, kinds[1] + kinds[2] + kinds[5]),
        Category("network", 1, int(kinds[3])),
    )
    assert kinds[3]
