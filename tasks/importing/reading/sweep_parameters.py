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
from tasks.importing._runner import is_seed
from tasks.importing.reading.parameters import ConvertedParameter, choice, is_number, number

SIGMAS = 3
"""Standard deviations to either side of the mean that a normal distribution becomes a range of."""
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
    seeds: list[str] = field(default_factory=list)
    """Parameters that get the seed of the run."""
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
        if is_seed(name):
            made.seeds.append(name)
            continue
        default = plain(defaults.get(path[-1], defaults.get(path[-1].replace("-", "_"))))
        if "values" in stated or "value" in stated:
            _listed(made, name, stated.get("values", [stated.get("value")]), default)
        else:
            made.found[name] = _range(name, {key: plain(value) for key, value in stated.items()}, default)
        if (one := made.found.get(name)) and one.lost:
            made.left.append(Term(name, one.lost))
        if one and one.table and default is None:
            made.left.append(Term(f"{name}: the program's default", f"not seen: the baseline has {one.baseline!r}"))
        if "probabilities" in stated:
            made.left.append(Term(f"{name}: probabilities", "left out: values are searched by what they score"))
    return made


def _leaves(parameters: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[list[str], dict[str, Any]]]:
    for name, stated in parameters.items():
        path = (*above, str(name))
        if not isinstance(stated, Mapping) or len(path) > 20:  # a YAML may hold itself
            where = ".".join(path[:3])
            raise Refused(f"parameters.{where}: must be a table with value, values or min and max, got {stated!r}")
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
    if all(_is_plain(value) for value in every):
        made.found[name] = choice(every, default if _is_plain(default) else None)  # type: ignore[arg-type]
        return
    try:
        texts = [json.dumps(value, default=str) for value in every]
    except TypeError as wrong:
        raise Refused(f"parameters.{name}: a key in {values!r} must be a text, or a number: {wrong}") from wrong
    if len(texts) == 1:
        made.constants[name] = json.loads(texts[0])
    else:
        made.as_json.append(name)
        made.found[name] = choice(texts, json.dumps(default, default=str))


def _is_plain(value: object) -> bool:
    return isinstance(value, Value) and is_finite(value)


def _range(name: str, stated: Mapping[str, Any], default: object) -> ConvertedParameter:
    """A distribution. See https://docs.wandb.ai/guides/sweeps/sweep-config-keys for what each one means."""
    both_whole = type(stated.get("min")) is int and type(stated.get("max")) is int
    kind = str(stated.get("distribution") or ("int_uniform" if both_whole else "uniform"))
    base, step = kind.removeprefix("q_"), _told(name, stated, "q", 1) if kind.startswith("q_") else None
    lost = ""
    if base == "beta":
        low, high, lost = 0.0, 1.0, f"{kind}: evenly from 0 to 1"
    elif base in ("normal", "log_normal"):
        mean, deviation = _told(name, stated, "mu", 0), _told(name, stated, "sigma", 1)
        low, high = mean - SIGMAS * deviation, mean + SIGMAS * deviation
        lost = f"{kind}: evenly, from {SIGMAS} standard deviations below to {SIGMAS} above its mean"
    elif base in ("uniform", "int_uniform", *LOG):
        low, high = _told(name, stated, "min"), _told(name, stated, "max")
    else:
        raise Refused(f"parameters.{name}: distribution {kind!r} is none that W&B documents, or it lacks values")
    try:
        if base in ("log_uniform", "inv_log_uniform", "log_normal"):  # of these the ends are exponents
            low, high = math.exp(low), math.exp(high)
    except OverflowError:
        raise Refused(f"parameters.{name}: {high:g} is too large for an exponent, which min and max are") from None
    if base == "inv_log_uniform":
        low, high = 1 / high, 1 / low
    if base.startswith("inv"):
        lost = f"{kind}: on a log scale, not on its inverse"
    if low > high or (base in LOG and low <= 0) or (step is not None and step <= 0):
        raise Refused(f"parameters.{name}: {kind} from {low:g} to {high:g} is no range")
    whole = base == "int_uniform" or (step is not None and isinstance(stated.get("q", 1), int))
    if step is not None and base in ("uniform", *LOG):  # W&B rounds to multiples of q
        low, high = round(low / step) * step, round(high / step) * step
    return number(low, high, whole=whole, log=base in LOG, step=step, default=default, lost=lost)


def _told(name: str, stated: Mapping[str, Any], key: str, otherwise: float | None = None) -> float:
    value = stated.get(key, otherwise)
    if not is_number(value):
        raise Refused(f"parameters.{name}: {key} must be a finite number, got {value!r}")
    return value
