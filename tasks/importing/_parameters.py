"""Parameters of other tools as entries of [space] and [fixed]; seeds among them; ranges around mere values."""

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from environments.space import LARGEST_INT, Value

SEED = re.compile(r"(.*[-_./])?(seed([-_]everything)?|random[-_]?(seed|state)|rng([-_]?key)?)", re.IGNORECASE)
MOST_STEPS = 64
"""Values of a parameter with steps that are listed one by one; of more the steps are dropped."""
LARGEST_SEARCHED = 1e6
"""Larger real numbers describe a machine or a data set."""


def is_seed(name: str) -> bool:
    """Whether a parameter is a seed: it gets the seed of the run, and no search picks the luckiest one."""
    return SEED.fullmatch(name) is not None


def is_plain(value: object) -> TypeGuard[Value]:
    """Whether environment.toml can hold a value."""
    return isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number that a float can hold: an int of another tool's file may be any."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


@dataclass(frozen=True)
class ConvertedParameter:
    """A parameter, in the keys of environment.toml."""

    table: dict[str, Any] = field(default_factory=dict)
    """Its entry in [space]; empty if it has one value only."""
    fixed: Value = ""
    """That value."""
    lost: str = ""
    """What of it is not carried."""


def held(value: Any) -> Value:
    """A value as environment.toml can hold it: null, or a list, as a text of JSON, which programs/run.py reads."""
    return value if is_plain(value) else json.dumps(value, default=str)


def choice(values: Sequence[Any], default: object = None, lost: str = "") -> ConvertedParameter:
    """One of some values, each listed once; the baseline has the first one where it is not told or not among them."""
    distinct = {(isinstance(each, bool), each): each for each in map(held, values)}  # True equals 1
    first = next(iter(distinct.values()), "")
    if len(distinct) < 2:
        return ConvertedParameter(fixed=first, lost=lost)
    wanted = distinct.get((isinstance(default, bool), held(default)), first)
    return ConvertedParameter({"type": "choice", "values": [*distinct.values()], "default": wanted}, lost=lost)


def number(
    low: float, high: float, *, whole: bool = False, log: bool = False, step: float | None = None,
    default: object = None,
) -> ConvertedParameter:  # fmt: skip
    """A range; the baseline has its middle where no default is told. With few steps it becomes a choice."""
    kind: type[int] | type[float] = int if whole else float
    low, high, log = kind(low), kind(high), log and low > 0
    if low >= high:
        return ConvertedParameter(fixed=low)
    middle = math.sqrt(low) * math.sqrt(high) if log else low + (high - low) / 2
    lost, wanted = "", default if is_number(default) else float(f"{middle:.3g}")
    if step and not (whole and step == 1):
        steps = math.floor((high - low) / step + 1e-9)
        if steps < MOST_STEPS:
            values = [kind(float(f"{low + place * step:.12g}")) for place in range(steps + 1)]
            return choice(values, min(values, key=lambda value: abs(value - wanted)))
        lost = f"steps of {step:g}: every value between may be proposed"
    table = {"type": "int" if whole else "float", "low": low, "high": high, **({"log": True} if log else {})}
    return ConvertedParameter({**table, "default": min(max(kind(wanted), low), high)}, lost=lost)


def guesses(values: Mapping[str, Value]) -> dict[str, dict[str, Any]]:
    """[space] around values whose ranges nothing states; seeds, and what has no natural range, are left out."""
    ranges = {name: _guess(value) for name, value in values.items() if not is_seed(name)}
    return {name: each for name, each in ranges.items() if each}


def _guess(value: Value) -> dict[str, Any]:
    """From a tenth to ten times, a share up to 1, near 1 by its distance from 1; a count by halves and doubles."""
    if isinstance(value, bool):
        return {"type": "choice", "values": [True, False], "default": value}
    if isinstance(value, str) or value <= 0 or value >= (LARGEST_INT if isinstance(value, int) else LARGEST_SEARCHED):
        return {}
    if isinstance(value, int):
        return {"type": "choice", "values": sorted({max(value // 2, 1), value, value * 2}), "default": value}
    if 0.8 < value < 1:
        low, high = round(1 - min(10 * (1 - value), 1), 12), round(1 - (1 - value) / 10, 12)
        return {"type": "float", "low": low, "high": high, "default": value}
    low, high = (float(f"{end:.6g}") for end in (value / 10, value * 10))
    return {"type": "float", "low": low, "high": min(high, 1.0) if value < 1 else high, "log": True, "default": value}
