"""Checks of an edited program's source: the calls that it must make, and the seeds that it must not fix."""

from __future__ import annotations

import pytest

from tasks.editing.checks import NotPython, fixed_seeds, missing_calls, parse


def missing(source: str) -> list[str]:
    return missing_calls({"train.py": source}, ["optimizer.step"])


@pytest.mark.parametrize("source", ["optimizer.step()", "self.optimizer.step()", "if False:\n    optimizer.step()"])
def test_a_call_counts_wherever_it_stands_in_dead_code_too(source: str) -> None:
    assert missing(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "# optimizer.step()\n'optimizer.step()'",
        "step = optimizer.step",
        "def step(): pass\nclass optimizer:\n    def step(self): pass",
        "my_optimizer.step()\noptimizer.step_all()\noptimizer.step.now()",
    ],
)
def test_a_name_without_its_call_does_not_count(source: str) -> None:
    assert missing(source) == ["optimizer.step"]


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
    "line",
    ["torch.manual_seed(0)", "env.reset(seed=3)", "seed = 3", "config['seed'] = 3", "config = {**config, 'seed': 3}"],
)
def test_a_seed_that_is_fixed_is_found_with_its_line(line: str) -> None:
    found = fixed("import torch\n", f"import torch\n{line}\n")
    assert len(found) == 1
    assert found[0].startswith("2: ")


@pytest.mark.parametrize(
    "line",
    [
        "torch.manual_seed(config['seed'])",
        "rng = np.random.default_rng(config['seed'] + 1)",
        "seed = config['seed']",
        "# torch.manual_seed(0)",
    ],
)
def test_a_seed_that_comes_from_the_configuration_is_fine(line: str) -> None:
    assert fixed("import torch\n", f"import torch\n{line}\n") == []


def test_a_fixed_seed_that_was_there_already_may_stay_and_move() -> None:
    before = "import torch\ntorch.manual_seed(0)\n"
    assert fixed(before, "torch.manual_seed(0)\nimport torch\n") == []
    assert fixed(before, before + "torch.manual_seed(1); x = 1\n") == ["3: torch.manual_seed(1)"]
