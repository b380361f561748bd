"""Foreign text is read in a process of its own: with limits, and without a trace for the next one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.sandbox.program import CannotStart
from tasks.sandbox.reader import Unreadable, read
from tests.support import readings


def test_a_value_comes_back_as_it_was_given() -> None:
    value = {"a": [1, 2.5, None, True, "\u00e9\ud800\n"], "b": {}}
    assert read(readings.echo, value) == value
    assert len(read(readings.echo, "x" * 2**22)) == 2**22


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (readings.recurs, "nested too deeply"),
        (readings.hoards, "512 MiB of memory"),
        (readings.crashes, "crashes its parser"),
        pytest.param(readings.spins, "3 s of processor time", marks=pytest.mark.slow),
    ],
)
def test_a_limit_that_is_met_is_the_reason(function: Callable[[], object], why: str) -> None:
    with pytest.raises(Unreadable, match=f"^the text .*{why}"):
        read(function)
    assert read(readings.echo, 1) == 1, "the next one is read"


def test_a_refusal_of_the_function_is_told_as_it_is_and_any_other_exception_with_its_kind() -> None:
    with pytest.raises(Unreadable, match="'x' is refused"):
        read(readings.refuses, "x")
    with pytest.raises(Unreadable, match="KeyError: 'x'"):
        read(readings.breaks, "x")


def test_a_fault_of_the_machine_is_no_verdict_about_the_text() -> None:
    with pytest.raises(CannotStart, match="killed"):
        read(readings.is_killed)
