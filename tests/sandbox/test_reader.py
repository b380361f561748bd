"""Foreign text is read in a process of its own: with limits, and without a trace for the next one."""

from __future__ import annotations

import copy
import ctypes
import json
import operator
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tasks.editing import patches
from tasks.sandbox.program import CannotStart
from tasks.sandbox.reader import Unreadable, read


def test_a_value_comes_back_as_it_was_given() -> None:
    value = {"a": [1, 2.5, None, True, "\u00e9\ud800\n"], "b": {}}
    assert read(copy.copy, value) == value
    assert len(read(copy.copy, "x" * 2**22)) == 2**22


@pytest.mark.parametrize(
    ("function", "values", "why"),
    [
        (json.loads, ("[" * 10**6,), "nested too deeply"),
        (operator.mul, ("x", 2**30), "512 MiB of memory"),
        (ctypes.string_at, (0,), "crashes its parser"),
        pytest.param(pow, (3, 10**9), "3 s of processor time", marks=pytest.mark.slow),
    ],
)
def test_a_limit_that_is_met_is_the_reason(function: Callable[..., object], values: tuple[Any, ...], why: str) -> None:
    with pytest.raises(Unreadable, match=f"^the text .*{why}"):
        read(function, *values)
    assert read(copy.copy, 1) == 1, "the next one is read"


def test_a_refusal_of_the_function_is_told_as_it_is_and_any_other_exception_with_its_kind() -> None:
    with pytest.raises(Unreadable, match=r"^(?!the text)"):
        read(patches.patched, {"a.py": "x\n"}, "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-y\n+z\n")
    with pytest.raises(Unreadable, match="KeyError: 'x'"):
        read(operator.getitem, {}, "x")


def test_a_fault_of_the_machine_is_no_verdict_about_the_text() -> None:
    with pytest.raises(CannotStart, match="killed"):
        read(signal.raise_signal, signal.SIGKILL)
