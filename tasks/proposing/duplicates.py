"""Duplicates: whether a proposal was tried before.

Two proposals are the same when every parameter is within a thousandth of its scale and the programs have the same
syntax tree but for docstrings. Names of variables and the order of definitions count as a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from environments.space import Float, Parameter, Space
from tasks.editing.python_source import meaning_of
from tasks.proposing.axes import Axis
from tasks.sandbox.reading.reader import Unreadable, read
from tasks.trial import Params, Value

TOLERANCE = 1e-3
"""Floats this close, as a share of their scale, are the same."""


@dataclass(frozen=True)
class EarlierProposal:
    """An earlier proposal, decided or under way."""

    number: int
    params: Params
    files: Mapping[str, str]
    """The whole texts of the editable files, by name."""
    what: str
    """Its outcome, such as `discarded at -12.3` or `under way`."""


def duplicate(space: Space, params: Params, files: Mapping[str, str], tried: Iterable[EarlierProposal]) -> str | None:
    """The earlier proposal that a proposal repeats, in a sentence; None when it is new.

    Args:
        params: A value for every parameter of the space; others, which are fixed, are not looked at.
        files: The whole texts of the editable files, by name.
    """
    for earlier in tried:
        is_same_point = all(
            name in params and name in earlier.params and _is_same(parameter, params[name], earlier.params[name])
            for name, parameter in space.items()
        )
        if is_same_point and (files == earlier.files or meaning(files) == meaning(earlier.files)):
            program = ", and a program with the same meaning" if files else ""
            return f"the same as trial {earlier.number} ({earlier.what}): parameters within a thousandth{program}"
    return None


def meaning(files: Mapping[str, str]) -> dict[str, str]:
    """Files by name without comments, docstrings and formatting of Python.

    A file that is no Python, or does not parse, counts with its whole text.
    """
    return {name: _meaning_of(text) if name.endswith(".py") else text for name, text in files.items()}


def _is_same(parameter: Parameter, one: Value, other: Value) -> bool:
    """Whether two values of a parameter are as good as equal."""
    axis = Axis("", parameter)
    try:
        apart = abs(axis.fraction(axis.number(one)) - axis.fraction(axis.number(other)))
    except ValueError:  # one lies outside of the space
        return repr(one) == repr(other)
    return apart <= (TOLERANCE if isinstance(parameter, Float) else 0.0)


@lru_cache(maxsize=4096)
def _meaning_of(text: str) -> str:
    with suppress(Unreadable):  # no Python, or no parser gets through it
        return read(meaning_of, text)
    return text
