"""W&B sweeps: method, metric, parameters with their distributions and the command of a sweep's YAML."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _runner, _source
from tasks.importing._original import DEEPEST, REPOSITORY, Table
from tasks.importing._parameters import (
    ConvertedParameter,
    choice,
    is_number,
    is_plain,
    is_seed,
    number,
    number_of_text,
    sections,
)

METHODS = {"grid": "grid", "random": "random_search", "bayes": "tpe"}
"""The proposers that search as W&B's methods do."""
COMMAND = ["${env}", "${interpreter}", "${program}", "${args}"]
MACROS = (*COMMAND, "${args_no_hyphens}", "${args_no_boolean_flags}", "${args_json}")
USUAL = ("sweep.yaml", "sweep.yml")
BUDGET_SECONDS, SIGMAS = 600, 3
"""A normal distribution becomes a range of so many standard deviations to either side of its mean."""
LOG = ("log_uniform", "log_uniform_values")
REASONS = {
    "early_terminate": "its brackets; trials that fall behind are stopped early anyway: --cancel",
    "metric.target": "no stopping at a score: the search ends by --trials, --hours or --until",
}
SEEDS = (
    "a program with fixed seeds gives one value under every seed of a trial: let it use AR_SEED of its environment, or "
    "state deterministic = true in environment.toml"
)


class WandbSweep(Importer):
    """A W&B sweep: its YAML, or a folder with a sweep.yaml."""

    def why_not(self, place: str) -> str:
        sweep = _sweep(place)
        return sweep if isinstance(sweep, str) else ""

    def convert(self, place: str) -> Imported:
        sweep = _sweep(place)
        assert isinstance(sweep, Table), "it was recognised"
        path, method, command = sweep.path, sweep.get("method", str), _command(sweep)
        if method not in METHODS:
            raise Refused(f"{path}: method: must be {', '.join(METHODS)}, got {method!r}")
        stated = sweep.get("program", str) or next((word for word in command if word.endswith(".py")), "")
        if not (name := stated.strip().removeprefix("./")):
            raise Refused(f"{path}: program: is missing, and no word of command ends in .py: state it in a copy")
        root = _original.folder_with([name], path)
        text, python = _original.read_text(root / name), _runner.python_of(root / name)
        try:
            defaults = _source.options(_source.parsed(root / name)).values
        except Refused:  # of another Python, or in another language
            defaults = {}
        made = converted(sweep.get("parameters", dict) or {}, defaults)
        theirs, goal = sweep.get("metric.name", str), sweep.get("metric.goal", str) or "minimize"
        if theirs is None or goal not in ("minimize", "maximize"):
            raise Refused(
                f"{path}: metric: must be a table such as {{name: val_loss, goal: minimize}}, with a name that the "
                "program logs: state it in a copy beside it"
            )
        metric, origin = _runner.metric_name(theirs), f"the W&B sweep {path}"
        copied, not_copied = _original.repository_files(root)
        title = sweep.get("name", str) or sweep.get("project", str) or path.parent.resolve().name
        how = {
            "command": command, "metric": theirs, "name": metric, "says_ready": "wandb" in text,
            "as_json": made.as_json, "paths": made.paths, "own": dict.fromkeys(made.seeds, "seed"), "keeps_files": True,
        }  # fmt: skip
        cap, proposer = sweep.get("run_cap", int), METHODS[method]
        return Imported(
            name=title,
            origin=origin,
            files=_runner.files(
                title,
                origin,
                name,
                sweep.get("description", str) or f"{name} gets the parameters of a trial and logs `{metric}`.",
                how=how,
                keys={
                    "metric": metric, "direction": goal, "budget_seconds": BUDGET_SECONDS, "python": python or None,
                    **sections(made.found),
                },
                originals=copied,
                stand_ins=("wandb", *_runner.TENSORBOARD),
            ),
            left=(
                *_runner.of_run(made.seeds, theirs, metric),
                *made.left,
                *not_copied,
                *_left(sweep, text),
                _runner.packages(python),
            ),
            warnings=(_runner.warning(f"{REPOSITORY}/{name}", theirs), *([] if made.seeds else [SEEDS])),
            options=(
                *(() if proposer == "tpe" else ("--proposer", proposer)),
                *(("--trials", str(cap)) if cap and cap > 0 else ()),
            ),
        )  # fmt: skip


def _sweep(place: str) -> Table | str:
    path = Path(place)
    if path.is_dir():
        path = next((path / name for name in USUAL if (path / name).is_file()), path / USUAL[0])
    return _original.yaml_table(path, "method", "parameters")


def _command(sweep: Table) -> list[str]:
    words = list(map(str, sweep.get("command", list) or COMMAND))
    if unknown := [word for word in words if word.startswith("${") and word not in MACROS]:
        raise Refused(f"{sweep.path}: command: {unknown[0]} has no value here: replace it in a copy of the file")
    return words


def _left(sweep: Table, text: str) -> Iterator[Term]:
    for key in dict.fromkeys(key if key in REASONS else key.partition(".")[0] for key in sweep.unread()):
        yield Term(key, REASONS.get(key, "of W&B's site"))
    for word in (word for word in ("WandbLogger", "WandbCallback", "wandb.plot") if word in text):
        yield Term(word, "numbers that reach W&B this way are not seen: log the metric by wandb.log")
    yield Term("no time limit in a sweep", f"budget_seconds = {BUDGET_SECONDS}, a guess: state your own")


@dataclass
class SweepParameters:
    """The converted parameters, by name."""

    found: dict[str, ConvertedParameter] = field(default_factory=dict)
    as_json: list[str] = field(default_factory=list)
    """Parameters whose values are lists, tables or null, written as JSON."""
    paths: dict[str, list[str]] = field(default_factory=dict)
    """Of nested parameters, the names from the outermost table to their own."""
    seeds: list[str] = field(default_factory=list)
    """Parameters that get the seed of the run."""
    left: list[Term] = field(default_factory=list)


def converted(parameters: Mapping[str, Any], stated_defaults: Mapping[str, Any]) -> SweepParameters:
    """The parameters of a sweep, with the program's own defaults, as far as they are known.

    Raises:
        Refused: one of them is none.
    """
    made, unseen = SweepParameters(), list[str]()
    defaults = {name.replace("-", "_"): _plain(value) for name, value in stated_defaults.items()}
    for path, stated in _leaves(parameters):
        name = ".".join(path)
        if len(path) > 1:
            made.paths[name] = path
        if is_seed(name):
            made.seeds.append(name)
            continue
        default = defaults.get(path[-1].replace("-", "_"))
        if "values" in stated or "value" in stated:
            one = _listed(made, name, stated.get("values", [stated.get("value")]), default)
        else:
            one = _range(name, {key: _plain(value) for key, value in stated.items()}, default)
        made.found[name] = one
        made.left += [Term(name, one.lost)] if one.lost else []
        if one.table and default is None:
            unseen.append(name)
        elif one.table and one.table["default"] != default:
            why = f"not among its values: the baseline has {one.table['default']!r}"
            made.left.append(Term(f"{name}: the program's default {default!r}", why))
        if "probabilities" in stated:
            made.left.append(Term(f"{name}: probabilities", "left out: values are searched by what they score"))
    if unseen:
        why = "not seen: the baseline has the middle of a range, and the first of several values"
        made.left.append(Term(f"the program's defaults of {', '.join(unseen)}", why))
    return made


def _leaves(parameters: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[list[str], dict[str, Any]]]:
    for name, stated in parameters.items():
        path = (*above, str(name))
        if not isinstance(stated, Mapping) or len(path) > DEEPEST:
            where = ".".join(path[:3])
            raise Refused(f"parameters.{where}: must be a table with value, values or min and max, got {stated!r}")
        if isinstance(stated.get("parameters"), Mapping):
            yield from _leaves(stated["parameters"], path)
        else:
            yield list(path), dict(stated)


def _plain(value: object) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else number_of_text(value)


def _listed(made: SweepParameters, name: str, values: object, default: object) -> ConvertedParameter:
    if not isinstance(values, list) or not values:
        raise Refused(f"parameters.{name}: values must be a list that is not empty, got {values!r}")
    every = [_plain(value) for value in values]
    if all(map(is_plain, every)):
        return choice(every, default)
    made.as_json.append(name)
    try:
        return choice([json.dumps(value, default=str) for value in every])
    except TypeError as wrong:
        raise Refused(f"parameters.{name}: a key in {values!r} must be a text, or a number: {wrong}") from wrong


def _range(name: str, stated: Mapping[str, Any], default: object) -> ConvertedParameter:
    """A distribution. See https://docs.wandb.ai/guides/sweeps/sweep-config-keys for what each one means."""
    both_whole = type(stated.get("min")) is int and type(stated.get("max")) is int
    kind = str(stated.get("distribution") or ("int_uniform" if both_whole else "uniform"))
    base, step = kind.removeprefix("q_"), _told(name, stated, "q", 1) if kind.startswith("q_") else None
    lost = ""
    if base == "normal":
        mean, deviation = _told(name, stated, "mu", 0), _told(name, stated, "sigma", 1)
        low, high = mean - SIGMAS * deviation, mean + SIGMAS * deviation
        lost = f"{kind}: evenly, from {SIGMAS} standard deviations below to {SIGMAS} above its mean"
    elif base in ("uniform", "int_uniform", *LOG):
        low, high = _told(name, stated, "min"), _told(name, stated, "max")
    else:
        raise Refused(
            f"parameters.{name}: distribution {kind!r} is not carried: state min and max, or values, in a copy"
        )
    if base == "log_uniform":  # its ends are exponents
        try:
            low, high = math.exp(low), math.exp(high)
        except OverflowError:
            raise Refused(f"parameters.{name}: {high:g} is too large for an exponent, which min and max are") from None
    if low > high or (base in LOG and low <= 0) or (step is not None and step <= 0):
        raise Refused(f"parameters.{name}: {kind} from {low:g} to {high:g} is no range")
    whole = base == "int_uniform" or (step is not None and isinstance(stated.get("q", 1), int))
    if step is not None and base != "normal":  # W&B rounds to multiples of q
        low, high = round(low / step) * step, round(high / step) * step
    return number(low, high, whole=whole, log=base in LOG, step=step, default=default, lost=lost)


def _told(name: str, stated: Mapping[str, Any], key: str, otherwise: float | None = None) -> float:
    value = stated.get(key, otherwise)
    if not is_number(value):
        raise Refused(f"parameters.{name}: {key} must be a finite number, got {value!r}")
    return value
