"""Sweeps of prime-rl: the TOML of its `sweep` command, with the configurations that it starts from.

The command is that of pull request 2502 of PrimeIntellect-ai/prime-rl; no release has it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from environments import toml_file
from environments.plugins import Refused
from environments.space import Value, is_finite
from tasks.importing import Imported, Importer, Recognised, Term
from tasks.importing.prime_rl import WARNINGS, described
from tasks.importing.reading.parameters import ConvertedParameter, choice, is_number, number
from tasks.importing.reading.prime_rl_config import PrimeRlConfig, files_of, keys, parameter_name, today, understood
from tasks.importing.reading.program_folder import folder_of

PROPOSERS = {"grid": "grid", "random": "random_search", "optuna": "tpe"}
READ = frozenset({"name", "entrypoint", "base", "parameters", "strategy", "objective"})
"""Keys of a sweep that are carried, or refused."""


class PrimeRlSweep(Importer):
    """A sweep of prime-rl: a TOML file with `base` and `parameters`."""

    def recognise(self, place: str) -> Recognised:
        path = Path(place)
        if not path.is_file() or path.suffix != ".toml":
            return Recognised(False, "no file .toml")
        try:
            table = tomllib.loads(path.read_text("utf-8"))
        except ValueError as wrong:
            return Recognised(False, f"{path.name} is not TOML: {wrong}"[:200])
        if not isinstance(table.get("base"), list) or not isinstance(table.get("parameters"), dict):
            return Recognised(False, f"{path.name} has no list `base` or no table [parameters]")
        return Recognised(True, f"{path.name} has base and [parameters]")

    def convert(self, place: str) -> Imported:
        path = Path(place)
        sweep = toml_file.read(path)
        if sweep.get("entrypoint", "rl") != "rl":
            raise Refused(f"{path}: entrypoint: {sweep['entrypoint']!r} is not trained here, only rl is")
        config = understood(_bases(path, sweep["base"]), ", ".join(map(str, sweep["base"])))
        swept = dict(_swept(sweep["parameters"], config))
        if not swept:
            raise Refused(f"{path}: none of its parameters is tuned here: {'; '.join(one.ours for one in config.left)}")
        space = {parameter_name(key): one.table for key, one in swept.items() if one.table}
        config.tuned = {key: value for key, value in config.tuned.items() if key not in swept}
        config.tuned |= {key: one.baseline for key, one in swept.items() if not one.table}
        config.carried += [Term(parameter_name(key), one.words) for key, one in swept.items()]
        title = str(sweep.get("name") or path.stem)
        files = {**files_of(config, space, title), "program.md": described(config, title, path)}
        return Imported(
            name=title, origin=f"the prime-rl sweep {path}", files=files,
            carried=tuple(config.carried), left=(*config.left, *_left(sweep)), warnings=WARNINGS,
            options=_options(sweep),
        )  # fmt: skip


def _bases(path: Path, names: list[Any]) -> dict[str, Any]:
    """The configurations that the sweep starts from, the later ones laid over."""
    merged: dict[str, Any] = {}
    for name in map(str, names):
        merged = keys().laid_over(merged, toml_file.read(folder_of(path, name) / name))
    return merged


def _swept(parameters: Mapping[str, Any], config: PrimeRlConfig) -> Iterator[tuple[str, ConvertedParameter]]:
    """The parameters by today's keys; those that the engine or the judge sets are noted as left."""
    for key, stated in _flat(parameters):
        now, why = today(key, config.is_old)
        if why:
            config.left.append(Term(key, why))
            continue
        made = _parameter(key, stated, config.tuned.get(now))
        if made.lost:
            config.left.append(Term(key, made.lost))
        yield now, made


def _flat(parameters: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every parameter by its dotted key, whether it is written in quotes or as tables."""
    for name, stated in parameters.items():
        if isinstance(stated, dict) and not {"values", "distribution"} & stated.keys():
            yield from _flat(stated, f"{above}{name}.")
        elif isinstance(stated, dict):
            yield above + name, stated
        else:
            raise Refused(f"parameters.{above}{name}: must be a table with values or a distribution, got {stated!r}")


def _parameter(key: str, stated: Mapping[str, Any], default: Value | None) -> ConvertedParameter:
    kind = stated.get("distribution", "choice")
    if kind == "choice":
        values = stated.get("values")
        if isinstance(values, list) and values and all(isinstance(one, Value) and is_finite(one) for one in values):
            return choice(values, default)
        raise Refused(f"parameters.{key}: values must be a list of numbers, texts or booleans, got {values!r}")
    ends = [stated.get(end) for end in ("min", "max")]
    low, high = (end if is_number(end) else None for end in ends)
    if low is None or high is None or kind not in ("uniform", "log_uniform", "int_uniform"):
        raise Refused(f"parameters.{key}: must have a distribution with min and max, got {dict(stated)!r}")
    whole, step = kind == "int_uniform", stated.get("step")
    if step is not None and (not is_number(step) or step <= 0):
        raise Refused(f"parameters.{key}: step must be a number above 0, got {step!r}")
    return number(low, high, whole=whole, log=kind == "log_uniform", step=step, default=default)


def _left(sweep: Mapping[str, Any]) -> Iterator[Term]:
    objective = sweep.get("objective")
    if isinstance(objective, dict):
        yield Term(f"objective: {objective.get('metric')}", "pass@1, which the judge measures after training")
    for key in sorted(sweep.keys() - READ):
        yield Term(key, "options of `nightshift run` say how a search goes on and ends; its results are not read")


def _options(sweep: Mapping[str, Any]) -> tuple[str, ...]:
    strategy = sweep.get("strategy")
    table = strategy if isinstance(strategy, dict) else {"type": strategy or "grid"}
    proposer, count = PROPOSERS.get(str(table.get("type", "grid")), "tpe"), table.get("num_trials")
    trials = ("--trials", str(count)) if type(count) is int and count > 0 else ()
    return (*(() if proposer == "tpe" else ("--proposer", proposer)), *trials)
