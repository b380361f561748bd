"""The parameters of a W&B sweep, with its distributions, as parameters of a search space."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from environments.plugins import Refused
from environments.space import Value, is_finite
from tasks.importing import Term
from tasks.importing.reading.parameters import ConvertedParameter, choice, is_number, number

SIGMAS = 3
"""Standard deviations to either side of the mean that a normal distribution becomes a range of."""
DEEPEST = 20
"""Levels of nested parameters; a YAML may hold itself."""
EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
LOG = ("log_uniform", "log_uniform_values", "inv_log_uniform", "inv_log_uniform_values", "log_normal")


@dataclass
class SweepParameters:
    """The converted parameters, by name."""

    found: dict[str, ConvertedParameter] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    """Lists, tables and null that never vary; the program gets them unchanged."""
    as_json: list[str] = field(default_factory=list)
    """Parameters whose values are lists, tables or null, written as JSON."""
    paths: dict[str, list[str]] = field(default_factory=dict)
    """Of nested parameters, the names from the outermost table to their own."""
    left: list[Term] = field(default_factory=list)


def converted(parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> SweepParameters:
    """The parameters of a sweep; `defaults` has the program's own values, as far as they are known.

    Raises:
        Refused: one of them is none.
    """
    made = SweepParameters()
    for path, stated in _leaves(parameters):
        name = ".".join(path)
        if len(path) > 1:
            made.paths[name] = path
        default = defaults.get(path[-1], defaults.get(path[-1].replace("-", "_")))
        if "values" in stated:
            _listed(made, name, stated["values"], default)
        elif "value" in stated:
            _constant(made, name, stated["value"])
        else:
            made.found[name] = _range(name, {key: plain(value) for key, value in stated.items()}, plain(default))
        if made.found.get(name) and made.found[name].lost:
            made.left.append(Term(name, made.found[name].lost))
        if "probabilities" in stated:
            made.left.append(Term(f"{name}: probabilities", "left out: values are searched by what they score"))
    return made


def _leaves(parameters: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[list[str], dict[str, Any]]]:
    for name, stated in parameters.items():
        path = (*above, str(name))
        if len(path) > DEEPEST:
            raise Refused(f"parameters.{'.'.join(path[:3])}...: nested more than {DEEPEST} deep")
        if not isinstance(stated, Mapping):
            raise Refused(
                f"parameters.{'.'.join(path)}: must be a table with value, values or min and max, got {stated!r}"
            )
        if isinstance(stated.get("parameters"), Mapping):
            yield from _leaves(stated["parameters"], path)
        else:
            yield list(path), dict(stated)


def plain(value: object) -> Any:
    """The value; a text such as `1e-4`, which YAML does not take for a number, as that number, and a date as a text."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    return float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value


def _listed(made: SweepParameters, name: str, values: object, default: object) -> None:
    if not isinstance(values, list) or not values:
        raise Refused(f"parameters.{name}: values must be a list that is not empty, got {values!r}")
    every = [plain(value) for value in values]
    if not all(_is_plain(value) for value in every):
        if len(every) == 1:
            _constant(made, name, every[0])
            return
        made.as_json.append(name)
        made.found[name] = choice([_as_json(name, value) for value in every], _as_json(name, default))
        return
    made.found[name] = choice(every, default if _is_plain(default) else None)  # type: ignore[arg-type]


def _constant(made: SweepParameters, name: str, value: object) -> None:
    one = plain(value)
    if _is_plain(one):
        made.found[name] = ConvertedParameter(fixed=one)
    else:
        made.constants[name] = json.loads(_as_json(name, value))


def _as_json(name: str, value: object) -> str:
    try:
        return json.dumps(value, default=str)
    except TypeError as wrong:
        raise Refused(f"parameters.{name}: a key in {value!r} must be a text, or a number: {wrong}") from wrong


def _is_plain(value: object) -> bool:
    return isinstance(value, Value) and is_finite(value)


def _range(name: str, stated: Mapping[str, Any], default: object) -> ConvertedParameter:
    """A distribution. See https://docs.wandb.ai/guides/sweeps/sweep-config-keys for what each one means."""
    ends = stated.get("min"), stated.get("max")
    both_whole = all(isinstance(end, int) and not isinstance(end, bool) for end in ends)
    kind = str(stated.get("distribution") or ("int_uniform" if both_whole else "uniform"))
    base, step = kind.removeprefix("q_"), _told(name, stated, "q", 1) if kind.startswith("q_") else None
    if step is not None and step <= 0:
        raise Refused(f"parameters.{name}: q must be above 0, got {step:g}")
    if base in ("normal", "log_normal"):
        mean, deviation = _told(name, stated, "mu", 0), _told(name, stated, "sigma", 1)
        low, high = mean - SIGMAS * deviation, mean + SIGMAS * deviation
        lost = f"{kind}: evenly, from {SIGMAS} standard deviations below to {SIGMAS} above its mean"
        if base == "log_normal":
            low, high = _exp(name, low), _exp(name, high)
        return number(low, high, log=base in LOG, step=step, default=default, lost=lost)
    if base == "beta":
        return number(0.0, 1.0, step=step, default=default, lost=f"{kind}: evenly from 0 to 1")
    if base not in ("uniform", "int_uniform", *LOG):
        raise Refused(f"parameters.{name}: distribution {kind!r} is none that W&B documents, or it lacks values")
    low, high = _told(name, stated, "min"), _told(name, stated, "max")
    if base in ("log_uniform", "inv_log_uniform"):  # of these the ends are exponents
        low, high = _exp(name, low), _exp(name, high)
        low, high = (1 / high, 1 / low) if base.startswith("inv") else (low, high)
    if low > high or (base in LOG and low <= 0):
        raise Refused(f"parameters.{name}: {kind} from {low:g} to {high:g} is no range")
    lost = f"{kind}: on a log scale, not on its inverse" if base.startswith("inv") else ""
    whole = base == "int_uniform" or (step is not None and isinstance(stated.get("q", 1), int))
    if step is not None:  # W&B rounds to multiples of q
        low, high = round(low / step) * step, round(high / step) * step
    return number(low, high, whole=whole, log=base in LOG, step=step, default=default, lost=lost)


def _told(name: str, stated: Mapping[str, Any], key: str, otherwise: float | None = None) -> float:
    value = stated.get(key, otherwise)
    if not is_number(value):
        raise Refused(f"parameters.{name}: {key} must be a finite number, got {value!r}")
    return float(value) if isinstance(value, float) else value


def _exp(name: str, exponent: float) -> float:
    try:
        return math.exp(exponent)
    except OverflowError:
        raise Refused(
            f"parameters.{name}: e to the power of {exponent:g} is too large: min and max are exponents"
        ) from None
