"""Parameters of other tools as entries of [space] and [fixed]."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from environments.space import LARGEST_INT, Value, is_finite

MOST_STEPS = 64
"""Values of a parameter with steps that are listed one by one; of more the steps are dropped."""


@dataclass(frozen=True)
class ConvertedParameter:
    """A parameter, in the keys of environment.toml."""

    table: dict[str, Any] = field(default_factory=dict)
    """Its entry in [space]; empty if it has one value only."""
    fixed: Value | None = None
    """That value."""
    lost: str = ""
    """What of it could not be carried; empty if nothing was lost."""

    @property
    def baseline(self) -> Value:
        return self.table["default"] if self.table else self.fixed  # type: ignore[return-value]

    @property
    def ends(self) -> list[Value]:
        """Its values, or the ends of its range."""
        if not self.table:
            return [self.baseline]
        return self.table["values"] if self.table["type"] == "choice" else [self.table["low"], self.table["high"]]

    @property
    def words(self) -> str:
        """What it became, for the account."""
        if not self.table:
            return f"always {self.fixed!r}: [fixed]"
        if self.table["type"] == "choice":
            what = f"one of {', '.join(map(repr, self.table['values']))}"
        else:
            scale = ", on a log scale" if self.table.get("log") else ""
            what = f"{self.table['type']} from {self.table['low']!r} to {self.table['high']!r}{scale}"
        return f"{what}; the baseline has {self.table['default']!r}"


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number that a float can hold: an int of another tool's file may be any."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def choice(values: Sequence[Value], default: Value | None = None, lost: str = "") -> ConvertedParameter:
    """One of some values, each listed once; the baseline has the first one where it is not told or not among them."""
    distinct = list({(isinstance(value, bool), value): value for value in values if is_finite(value)}.values())
    if len(distinct) < 2:
        return ConvertedParameter(fixed=distinct[0] if distinct else "", lost=lost)
    known = [value for value in distinct if value == default and isinstance(value, bool) == isinstance(default, bool)]
    return ConvertedParameter({"type": "choice", "values": distinct, "default": (known or distinct)[0]}, lost=lost)


def number(
    low: float, high: float, *, whole: bool = False, log: bool = False, step: float | None = None,
    default: object = None, lost: str = "",
) -> ConvertedParameter:  # fmt: skip
    """A range; the baseline has its middle where no default is told. With few steps it becomes a choice."""
    kind: Callable[[float], int | float] = (lambda x: min(max(round(x), -LARGEST_INT), LARGEST_INT)) if whole else float
    low, high = kind(low), kind(high)
    if low >= high:
        return ConvertedParameter(fixed=low, lost=lost)
    if step and not (whole and step == 1):
        steps = math.floor((high - low) / step + 1e-9)
        if steps < MOST_STEPS:
            values = [kind(float(f"{low + place * step:.12g}")) for place in range(steps + 1)]
            return choice(values, _nearest(values, _number(default, _middle(low, high, log))), lost)
        lost = "; ".join(filter(None, [lost, f"steps of {step:g}: every value between may be proposed"]))
    log = log and low > 0
    at = min(max(kind(_number(default, _middle(low, high, log))), low), high)
    kept = {"log": True} if log else {}
    return ConvertedParameter(
        {"type": "int" if whole else "float", "low": low, "high": high, **kept, "default": at}, lost=lost
    )


def _number(value: object, otherwise: float) -> float:
    return value if is_number(value) else otherwise


def _middle(low: float, high: float, log: bool) -> float:
    middle = math.sqrt(low) * math.sqrt(high) if log and low > 0 else low + (high - low) / 2
    return float(f"{middle:.3g}") if low <= float(f"{middle:.3g}") <= high else middle


def _nearest(values: Sequence[Value], to: float) -> Value:
    return min(values, key=lambda value: abs(float(value) - to))
