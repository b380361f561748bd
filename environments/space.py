"""The search space: the parameters that a proposer varies. Written in environment.toml under `[space.NAME]`."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

Value = int | float | str | bool
Constant = bool | int | FiniteFloat | str
"""A value that JSON can hold."""
LARGEST_INT = 2**53
"""Above it a float no longer distinguishes neighbouring integers."""


def is_finite(value: Value) -> bool:
    """Whether JSON can hold the value."""
    return not isinstance(value, float) or math.isfinite(value)


class _Range(BaseModel):
    """Bounds, a scale, and a default within the bounds, shared by Float and Int."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    low: float
    high: float
    log: bool = False
    """Search on a logarithmic scale; needs low > 0."""
    default: float

    @model_validator(mode="after")
    def _is_a_range(self) -> _Range:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got low = {self.low}, high = {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a log scale needs low > 0, got low = {self.low}: raise low or drop log")
        if not self.low <= self.default <= self.high:
            raise ValueError(f"the default must lie in {self.low}..{self.high}, got {self.default}")
        return self

    def _at(self, fraction: float) -> float:
        """The point at `fraction` (0..1) of the range on its scale, the ends exactly."""
        if fraction in (0.0, 1.0):  # exp(log(1e-5)) lies below 1e-5
            return self.high if fraction else self.low
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        point = low + fraction * (high - low)
        return min(max(math.exp(point) if self.log else point, self.low), self.high)

    def _spread(self, points: int) -> list[float]:
        return [self._at(i / (points - 1)) for i in range(points)] if points != 1 else [self.default]


class Float(_Range):
    """A real number in [low, high]."""

    type: Literal["float"] = "float"
    low: FiniteFloat
    high: FiniteFloat
    default: FiniteFloat

    def sample(self, rng: np.random.Generator) -> float:
        return self._at(rng.random())

    def grid(self, points: int) -> tuple[float, ...]:
        """At most `points` values evenly spaced on the scale, from end to end; one point is the default."""
        return tuple(dict.fromkeys(self._spread(points)))

    def check(self, value: Value) -> float:
        """The value as a float. Raises ValueError when it is not a number in the range."""
        if isinstance(value, bool | str) or not self.low <= value <= self.high:
            raise ValueError(f"must be a number in {self.low}..{self.high}, got {value!r}")
        return float(value)


class Int(_Range):
    """A whole number in [low, high]."""

    type: Literal["int"] = "int"
    low: int = Field(ge=-LARGEST_INT, le=LARGEST_INT)
    high: int = Field(ge=-LARGEST_INT, le=LARGEST_INT)
    default: int

    def sample(self, rng: np.random.Generator) -> int:
        if not self.log:
            return int(rng.integers(self.low, self.high + 1))
        # Half a step beyond each end, so that the ends are as likely as their neighbours on the log scale.
        low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
        return min(max(round(math.exp(low + rng.random() * (high - low))), self.low), self.high)

    def grid(self, points: int) -> tuple[int, ...]:
        """At most `points` distinct whole values, evenly spaced on the scale; one point is the default."""
        return tuple(dict.fromkeys(map(round, self._spread(points))))

    def check(self, value: Value) -> int:
        """The value as an int. Raises ValueError when it is not a whole number in the range."""
        if isinstance(value, bool | str) or not self.low <= value <= self.high or value != int(value):
            raise ValueError(f"must be a whole number in {self.low}..{self.high}, got {value!r}")
        return int(value)


class Choice(BaseModel):
    """One of a few unordered values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["choice"] = "choice"
    values: tuple[Constant, ...] = Field(min_length=1)
    default: Constant

    @model_validator(mode="after")
    def _default_is_one_of_them(self) -> Choice:
        if len({(isinstance(value, bool), value) for value in self.values}) < len(self.values):
            raise ValueError(f"values must differ, got {list(self.values)}")
        self.check(self.default)
        return self

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
