"""Checks of an edited program's source: the calls that it must make, and the seeds that it must not fix."""

from __future__ import annotations

import pytest

from tasks.editing.checks import NotPython, fixed_seeds, missing_calls, parse


@pytest.mark.parametrize(
    ("source", "is_met"),
    [
        ("self.optimizer.step()", True),
        ("if False:\n    optimizer.step()", True),
        ("# optimizer.step()\n'optimizer.step()'\nstep = optimizer.step", False),
        ("my_optimizer.step()\noptimizer.step_all()\noptimizer.step.now()", False),
    ],
)
def test_a_call_counts_wherever_it_stands_and_a_name_without_its_call_does_not(source: str, is_met: bool) -> None:
    assert missing_calls({"train.py": source}, ["optimizer.step"]) == ([] if is_met else ["optimizer.step"])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("x = 1\nif x\n", "train.py:2: expected ':': 'if x'"),
        ("# coding: utf-7\nx = 1\n", "train.py:1: it claims to be in utf-7"),
        ("x = " + "-" * 100_000 + "1", "train.py: nested too deeply"),
        ("x = '\0'", "null bytes"),
    ],
)
def test_what_python_would_not_take_is_told_with_its_place(source: str, why: str) -> None:
    with pytest.raises(NotPython) as wrong:
        parse("train.py", source)
    assert why in str(wrong.value)


def fixed(before: str, after: str) -> list[str]:
    return [site.removeprefix("train.py:") for site in fixed_seeds("train.py", before, after)]


@pytest.mark.parametrize(
    ("line", "is_fixed"),
    [
        ("torch.manual_seed(0)", True),
        ("env.reset(seed=3)", True),
        ("seed = 3", True),
        ("config['seed'] = 3", True),
        ("config = {**config, 'seed': 3}", True),
        ("rng = np.random.default_rng(config['seed'] + 1)", False),
        ("seed = config['seed']", False),
        ("# torch.manual_seed(0)", False),
    ],
)
def test_a_seed_that_is_fixed_is_found_with_its_line(line: str, is_fixed: bool) -> None:
    found = fixed("import torch\n", f"import torch\n{line}\n")
    assert [site.partition(":")[0] for site in found] == ["2"] * is_fixed


def test_a_fixed_seed_that_was_there_already_may_stay_and_move() -> None:
    before = "import torch\ntorch.manual_seed(0)\n"
    assert fixed(before, "torch.manual_seed(0)\nimport torch\n") == []
    assert fixed(before, before + "torch.manual_seed(1); x = 1\n") == ["3: torch.manual_seed(1)"]
