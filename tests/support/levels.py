"""The levels of the sandbox that this machine offers, as parameters of tests: which are fast, and which are slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import working

WORKING: list[Level] = working()
"""Every level that this machine offers, the strongest first."""
SANDBOXED: list[Level] = [level for level in WORKING if level != "none"]
"""Those that keep a program from what is not its own."""


def fast_at(fast: Sequence[Level], levels: Sequence[Level] = WORKING) -> list[Any]:
    """These levels, slow but for some."""
    return [level if level in fast else pytest.param(level, marks=pytest.mark.slow) for level in levels]


STRONGEST_AND_NONE = fast_at((WORKING[0], "none"))
"""For what has to stand by itself: what lies between the two ends is slow and tells little."""


def crossed(cases: Sequence[Sequence[Any]]) -> list[Any]:
    """Every case at every level, as parameters (*case, level). Fast are all cases at the strongest level, and the first
    at each. For what is decided alike at every level."""
    return [
        pytest.param(*case, level, id=f"{case[0]}-{level}", marks=[pytest.mark.slow] if number and place else [])
        for number, case in enumerate(cases)
        for place, level in enumerate(WORKING)
    ]
