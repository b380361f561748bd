"""What counts as tried before: parameters by their scales, programs by their meaning."""

from __future__ import annotations

import pytest

from environments.space import Choice, Float, Int, Space
from tasks.proposing.validation import is_same_point, meaning
from tasks.trial import Params, Value

SPACE: Space = {
    "lr": Float(low=1e-5, high=1e-1, log=True, default=1e-3),
    "gamma": Float(low=0.0, high=1.0, default=0.9),
    "layers": Int(low=1, high=100_000, default=2),
    "act": Choice(values=("tanh", True, 1), default="tanh"),
}
PARAMS: Params = {"lr": 1e-3, "gamma": 0.5, "layers": 20_000, "act": True, "fixed": 3}
PROGRAM = '''\
"""The trainer."""
import math

# how fast
def rate(step, total=100):
    return 0.5 * (1 + math.cos(math.pi * step / total))
'''
SAME = '''\
"""The trainer."""
import math
def rate( step,
          total = 1_00 ):  # another comment
    return (0.5*(1 + math.cos(math.pi*step/total)))
'''


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("lr", 1e-3 * 1.009, True),  # 0.001 * log(1e4) = 0.0092
        ("lr", 1e-3 * 1.010, False),
        ("layers", 20_001, False),
        ("act", 1, False),  # True == 1
        ("fixed", 4, True),
        ("gamma", 7.0, False),
    ],
)
def test_a_parameter_is_the_same_within_a_thousandth_of_its_own_scale(name: str, value: Value, same: bool) -> None:
    assert is_same_point(SPACE, {**PARAMS, name: value}, PARAMS) is same


def test_comments_and_formatting_do_not_make_another_program_and_all_else_does() -> None:
    changes = {"0.5 *": "0.6 *", "step, total": "total, step", "import math\n": "import math\nimport os\n"}
    others = [PROGRAM.replace(old, new) for old, new in changes.items()]
    same, own, *different = [meaning({"train.py": text}) for text in (SAME, PROGRAM, *others)]
    assert same == own and own not in different
