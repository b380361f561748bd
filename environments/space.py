"""The search space: the parameters that a proposer varies. Written in environment.toml under `[space.NAME]`."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat, model_validator

Value = int | float | str | bool
Constant = bool | int | FiniteFloat | str
"""A value that JSON can hold."""
LARGEST_INT = 2**53
"""Above it a float no longer distinguishes neighbouring integers."""


class _Range(BaseModel, frozen=True, extra="forbid"):
    """Bounds, a scale, and a default within the bounds, shared by Float and Int."""

    low: FiniteFloat
    high: FiniteFloat
    log: bool = False
    """Search on a logarithmic scale; needs low > 0."""
    default: FiniteFloat

    is_ordered: ClassVar[bool] = True
    """Whether a greater value means more of something."""
    _half: ClassVar[float] = 0.0
    """How far the values at the ends reach beyond them, so that they are as likely as others."""

    @model_validator(mode="after")
    def _is_a_range(self) -> _Range:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got low = {self.low}, high = {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a log scale needs low > 0, got low = {self.low}: raise low or drop log")
        if not self.low <= self.default <= self.high:
            raise ValueError(f"the default must lie in {self.low}..{self.high}, got {self.default}")
        return self

    @property
    def _ends(self) -> tuple[float, float]:
        """Where the scale begins and ends."""
        low, high = self.low - self._half, self.high + self._half
        return (math.log(low), math.log(high)) if self.log else (low, high)

    def at(self, fraction: float) -> float:
        """The number at `fraction` (0..1) of the scale, the ends exactly."""
        if fraction in (0.0, 1.0):  # exp(log(1e-5)) lies below 1e-5
            return self.high if fraction else self.low
        low, high = self._ends
        point = low + fraction * (high - low)
        return min(max(math.exp(point) if self.log else point, self.low), self.high)

    def fraction(self, value: Value) -> float:
        """A number's position on the scale, 0 to 1; the inverse of `at`, but for rounding."""
        low, high = self._ends
        return ((math.log(float(value)) if self.log else float(value)) - low) / (high - low)

    def sample(self, rng: np.random.Generator) -> float:
        return self.check(self.at(rng.random()))

    def grid(self, points: int) -> tuple[float, ...]:
        """At most `points` values evenly spaced on the scale, from end to end; one point is the default."""
        spread = [self.at(i / (points - 1)) for i in range(points)] if points != 1 else [self.default]
        return tuple(dict.fromkeys(map(self.check, spread)))

    def check(self, value: Value) -> float:
        """The value as a number of this kind. Raises ValueError when it is none in the range."""
        if isinstance(value, bool | str) or not self.low <= value <= self.high:
            raise ValueError(f"must be a number in {self.low}..{self.high}, got {value!r}")
        return float(value)


class Float(_Range):
    """A real number in [low, high]."""

    type: Literal["float"] = "float"


class Int(_Range):
    """A whole number in [low, high]."""

    type: Literal["int"] = "int"
    low: int = Field(ge=-LARGEST_INT, le=LARGEST_INT)
    high: int = Field(ge=-LARGEST_INT, le=LARGEST_INT)
    default: int

    _half: ClassVar[float] = 0.5

    def at(self, fraction: float) -> int:
        return round(super().at(fraction))

    def check(self, value: Value) -> int:
        if (number := super().check(value)) != int(number):
            raise ValueError(f"must be a whole number in {self.low}..{self.high}, got {value!r}")
        return int(number)


class Choice(BaseModel, frozen=True, extra="forbid"):
    """One of a few unordered values."""

    type: Literal["choice"] = "choice"
    values: tuple[Constant, ...] = Field(min_length=1)
    default: Constant

    @model_validator(mode="after")
    def _default_is_one_of_them(self) -> Choice:
        if len({(isinstance(value, bool), value) for value in self.values}) < len(self.values):
            raise ValueError(f"values must differ, got {list(self.values)}")
        self.check(self.default)
        return self

    @property
    def is_ordered(self) -> bool:
        """Whether a greater value means more of something: only where all are numbers."""
        return not any(isinstance(value, bool | str) for value in self.values)

    @property
    def ranked(self) -> tuple[Value, ...]:
        """The values along their scale: numbers by size, others as they were listed."""
        return tuple(sorted(self.values, key=float)) if self.is_ordered else self.values

    def rank(self, value: Value) -> int:
        """The place of one of the values among `ranked`."""
        return [repr(own) for own in self.ranked].index(repr(value))  # by repr, since True == 1

    def at(self, fraction: float) -> Value:
        """The value at `fraction` (0..1) of the scale, of which all have equal shares."""
        return self.ranked[min(int(fraction * len(self.values)), len(self.values) - 1)]

    def fraction(self, value: Value) -> float:
        """Where on the scale one of the values is, 0 to 1: in the middle of its share."""
        return (self.rank(value) + 0.5) / len(self.values)

    def sample(self, rng: np.random.Generator) -> Value:
        return self.values[int(rng.integers(len(self.values)))]

    def grid(self, points: int) -> tuple[Value, ...]:
        """All values: a choice has no scale, so `points` is ignored."""
        return self.values

    def check(self, value: Value) -> Value:
        """The matching value of the list (1.0 finds 1, but True does not). Raises ValueError when there is none."""
        for own in self.values:
            if own == value and isinstance(own, bool) == isinstance(value, bool):
                return own
        raise ValueError(f"must be one of {list(self.values)}, got {value!r}")


Parameter = Annotated[Float | Int | Choice, Field(discriminator="type")]
Space = dict[str, Parameter]
