"""Sweeps of prime-rl: the TOML of its `sweep` command, with the configurations that it starts from and its results.

The command is that of pull request 2502 of PrimeIntellect-ai/prime-rl; no release has it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from environments import toml_file
from environments.plugins import Refused
from environments.space import Value, is_finite
from tasks.importing import EarlierTrial, Imported, Importer, Recognised, Term
from tasks.importing.prime_rl import WARNINGS, described
from tasks.importing.reading.parameters import ConvertedParameter, choice, is_number, number
from tasks.importing.reading.prime_rl_files import files_of
from tasks.importing.reading.prime_rl_keys import SAME, PrimeRlConfig, keys, translated
from tasks.importing.reading.program_folder import folder_of

PROPOSERS = {"grid": "grid", "random": "random_search", "optuna": "tpe"}
SCORED_HERE = "pass@1"


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
        found = translated(_bases(path, sweep["base"]), ", ".join(map(str, sweep["base"])))
        swept = dict(_swept(sweep["parameters"], found))
        if not swept:
            raise Refused(
                f"{path}: no parameter of it may be tuned here: {'; '.join(one.ours for one in found.left[-3:])}"
            )
        found.tuned = {key: value for key, value in found.tuned.items() if _name(key) not in swept}
        space = {name: one.table for name, one in swept.items() if one.table}
        found.tuned |= {keys().DOTTED.get(name, name): one.baseline for name, one in swept.items() if not one.table}
        found.carried += [Term(name, one.words) for name, one in swept.items()]
        title = str(sweep.get("name") or path.stem)
        history = tuple(_history(path, sweep, found))
        files = {**files_of(found, space, title), "program.md": described(found, title, path)}
        return Imported(
            name=title, origin=f"the prime-rl sweep {path}", files=files,
            carried=tuple(found.carried), left=(*found.left, *_left(sweep)), warnings=WARNINGS, history=history,
            options=_options(sweep),
        )  # fmt: skip


def _bases(path: Path, names: list[Any]) -> dict[str, Any]:
    """The configurations that the sweep starts from, the later ones laid over."""
    merged: dict[str, Any] = {}
    for name in map(str, names):
        file = folder_of(path, name) / name
        _lay_over(merged, toml_file.read(file))
    return merged


def _lay_over(table: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(table.get(key), dict):
            _lay_over(table[key], value)
        else:
            table[key] = value


def _name(key: str) -> str:
    """The parameter of a key of an old or new prime-rl."""
    now = SAME.get(key, key)
    called: dict[str, str] = {dotted: name for name, dotted in keys().DOTTED.items()}
    return called.get(now, now)


def _swept(parameters: Mapping[str, Any], found: PrimeRlConfig) -> Iterator[tuple[str, ConvertedParameter]]:
    """The parameters that may be tuned, by name; the others are noted as left."""
    known = keys()
    for key, stated in _flat(parameters):
        now = SAME.get(key, key)
        if now not in known.KEYS:
            found.left.append(Term(key, known.stranger(key)))
            continue
        made = _parameter(key, stated, found.tuned.get(now))
        if faults := [fault for value in made.ends if (fault := known.KEYS[now].fault(value))]:
            found.left.append(Term(key, f"{now} {faults[0]}"))
            continue
        if made.lost:
            found.left.append(Term(key, made.lost))
        yield _name(key), made


def _flat(parameters: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every parameter by its dotted key, whether it is written in quotes or as tables."""
    for name, stated in parameters.items():
        if isinstance(stated, dict) and not {"values", "distribution"} & stated.keys():
            yield from _flat(stated, f"{above}{name}.")
        elif isinstance(stated, dict):
            yield above + name, stated
        else:
            raise Refused(
                f"parameters.{above}{name}: must be a table with values or a distribution, got {stated!r}: correct it, "
                f"or leave it out"
            )


def _parameter(key: str, stated: Mapping[str, Any], default: Value | None) -> ConvertedParameter:
    kind = stated.get("distribution", "choice")
    if kind == "choice":
        values = stated.get("values")
        if (
            not isinstance(values, list)
            or not values
            or not all(isinstance(one, Value) and is_finite(one) for one in values)
        ):
            raise Refused(
                f"parameters.{key}: values must be a list of numbers, texts or booleans with one entry at least, "
                f"got {values!r}"
            )
        return choice(values, default)
    ends = [stated.get(end) for end in ("min", "max")]
    low, high = (end if is_number(end) else None for end in ends)
    if low is None or high is None or kind not in ("uniform", "log_uniform", "int_uniform"):
        raise Refused(f"parameters.{key}: must have a distribution with min and max, got {dict(stated)!r}")
    whole, step = kind == "int_uniform", stated.get("step")
    if step is not None and (not is_number(step) or step <= 0):
        raise Refused(f"parameters.{key}: step must be a number above 0, got {step!r}")
    return number(low, high, whole=whole, log=kind == "log_uniform", step=step, default=default)


def _history(path: Path, sweep: Mapping[str, Any], found: PrimeRlConfig) -> Iterator[EarlierTrial]:
    """The trials that the sweep has run, from its output folder; those whose objective is to be minimised are left."""
    objective = sweep.get("objective")
    output = path.parent / str(sweep.get("output_dir", ""))
    if not isinstance(objective, dict) or "output_dir" not in sweep or not (output / "trials").is_dir():
        return
    if objective.get("direction") != "maximize":
        found.left.append(
            Term("results of the sweep", f"left out: {objective.get('metric')} does not point as {SCORED_HERE}")
        )
        return
    count = 0
    for status in sorted((output / "trials").glob("*/status.json")):
        one = _trial(status)
        if one is not None:
            count += 1
            yield one
    found.carried.append(Term(f"{count} finished trials in {output}", "earlier trials in history.jsonl, for proposers"))


def _trial(status: Path) -> EarlierTrial | None:
    try:
        said = json.loads(status.read_text("utf-8"))
        table = tomllib.loads((status.parent / "overrides.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    score, state = (said.get(key) for key in ("objective", "state")) if isinstance(said, dict) else (None, None)
    if state not in ("completed", "failed"):
        return None
    flat = {SAME.get(key, key): value for key, value in keys().flat(table)}
    params = {_name(key): value for key, value in flat.items() if key in keys().KEYS and isinstance(value, Value)}
    return EarlierTrial(
        params, score if is_number(score) else None, f"trial {status.parent.name} of the sweep: {state}"
    )


def _left(sweep: Mapping[str, Any]) -> Iterator[Term]:
    objective = sweep.get("objective")
    if isinstance(objective, dict):
        yield Term(f"objective: {objective.get('metric')}", f"{SCORED_HERE}, which the judge measures after training")
    for key, why in (
        ("scheduler", "slots of this machine, or --launch for others"),
        ("early_stopping", "no stopping at a score: the search ends by --trials, --hours or --until"),
        ("retry_budget", "faults of the machine are retried twice"),
        ("continue_on_failure", "a crash is a result, and the search goes on"),
        ("wandb", "MLflow has every trial"),
    ):
        if key in sweep:
            yield Term(key, why)
    if isinstance(sweep.get("strategy"), dict) and "pruner" in sweep["strategy"]:
        yield Term("strategy.pruner", "trials that fall behind are stopped early: --cancel")


def _options(sweep: Mapping[str, Any]) -> tuple[str, ...]:
    strategy = sweep.get("strategy")
    table = strategy if isinstance(strategy, dict) else {"type": strategy or "grid"}
    proposer, count = PROPOSERS.get(str(table.get("type", "grid")), "tpe"), table.get("num_trials")
    trials = ("--trials", str(count)) if type(count) is int and count > 0 else ()
    return (*(() if proposer == "tpe" else ("--proposer", proposer)), *trials)
