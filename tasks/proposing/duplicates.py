"""Duplicates: whether a proposal was tried before, and which categories of ideas were, from the history alone.

Two proposals are the same when every parameter is within a thousandth of its scale and the programs have the same
syntax tree but for docstrings. Names of variables and the order of definitions count as a difference.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from environments.space import Choice, Float, Parameter, Space
from tasks.editing.python_source import meaning_of
from tasks.sandbox.reading.reader import Unreadable, read
from tasks.trial import History, Params, Value

TOLERANCE = 1e-3
"""Floats this close, as a share of their scale, are the same."""
REMEMBERED = 4096
"""Programs whose digest is cached: with 20 KiB each, some 80 MiB."""


@dataclass(frozen=True)
class EarlierProposal:
    """An earlier proposal, decided or under way."""

    number: int
    params: Params
    files: Mapping[str, str]
    """The whole texts of the editable files, by name."""
    what: str
    """Its outcome, such as `discarded at -12.3` or `under way`."""


@dataclass(frozen=True)
class Category:
    """A category of ideas, and its outcomes."""

    name: str
    tries: int
    """Decided trials."""
    keeps: int


def duplicate(space: Space, params: Params, files: Mapping[str, str], tried: Iterable[EarlierProposal]) -> str | None:
    """The earlier proposal that a proposal repeats, in a sentence; None when it is new.

    Args:
        params: A value for every parameter of the space; others, which are fixed, are not looked at.
        files: The whole texts of the editable files, by name.
    """
    for earlier in tried:
        if _is_same_point(space, params, earlier.params) and (
            files == earlier.files or meaning(files) == meaning(earlier.files)
        ):
            return f"the same as trial {earlier.number} ({earlier.what}): {_likeness(space, params, files, earlier)}"
    return None


def meaning(files: Mapping[str, str]) -> str:
    """A digest of files without comments, docstrings and formatting of Python.

    A file that is no Python, or does not parse, counts with its whole text.
    """
    parts = [f"{name}\0{_meaning_of(name.endswith('.py'), text)}" for name, text in sorted(files.items())]
    return hashlib.sha256("\n".join(parts).encode(errors="surrogatepass")).hexdigest()


def categories(history: History) -> tuple[Category, ...]:
    """The categories of decided trials, most tried first; trials without one are left out."""
    tries: dict[str, list[bool]] = {}
    for trial in history:
        name = normal(trial.proposal.category)
        if name and trial.number > 0:
            tries.setdefault(name, []).append(trial.verdict.kind == "keep")
    every = (Category(name, len(kept), sum(kept)) for name, kept in tries.items())
    return tuple(sorted(every, key=lambda category: (-category.tries, -category.keeps, category.name)))


def normal(category: str) -> str:
    """A category's name with its case and separators normalised.

    >>> normal(" Learning_Rate")
    'learning rate'
    """
    return re.sub(r"[\s_-]+", " ", category).strip().casefold()


def _is_same_point(space: Space, params: Params, others: Params) -> bool:
    return all(
        name in params and name in others and _is_same(parameter, params[name], others[name])
        for name, parameter in space.items()
    )


def _is_same(parameter: Parameter, one: Value, other: Value) -> bool:
    """Whether two values of a parameter are as good as equal."""
    if type(one) is type(other) and one == other:
        return True
    try:
        one, other = parameter.check(one), parameter.check(other)
    except ValueError:  # one lies outside of the space, the other is another value
        return False
    if isinstance(parameter, Choice):
        return repr(one) == repr(other)  # by repr, since True == 1
    if not isinstance(parameter, Float):
        return one == other
    low, high = parameter.low, parameter.high
    ends = (float(one), float(other), low, high)
    first, second, low, high = map(math.log, ends) if parameter.log else ends
    return abs(first - second) <= TOLERANCE * (high - low)


def _likeness(space: Space, params: Params, files: Mapping[str, str], earlier: EarlierProposal) -> str:
    """In which way two proposals are the same."""
    exactly = all(repr(params[name]) == repr(earlier.params[name]) for name in space)
    point = "the same parameters" if exactly else "parameters within a thousandth of their ranges"
    if not files:
        return point
    program = "the same program" if files == earlier.files else "a program with the same meaning"
    return f"{point}, and {program}"


@lru_cache(REMEMBERED)
def _meaning_of(is_python: bool, text: str) -> str:
    if is_python:
        with suppress(Unreadable):  # no Python, or no parser gets through it
            return read(meaning_of, text)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
