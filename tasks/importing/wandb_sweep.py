"""W&B sweeps: method, metric, parameters with their distributions and the command of a sweep's YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Importer, Term, _original, _runner, _source
from tasks.importing._original import REPOSITORY, Table
from tasks.importing._parameters import ConvertedParameter, choice, is_number, is_plain, is_seed, number, sections

METHODS = {"grid": "grid", "random": "random_search", "bayes": "tpe"}
"""The proposers that search as W&B's methods do."""
COMMAND = ["${env}", "${interpreter}", "${program}", "${args}"]
MACROS = (*COMMAND, "${args_no_hyphens}", "${args_no_boolean_flags}", "${args_json}")
USUAL = "sweep.yaml"
EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
BUDGET_SECONDS = 600
LOG = "log_uniform_values"
DISTRIBUTIONS = ("uniform", "int_uniform", LOG)
"""Those that are carried, each also with q_ before it."""
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
        text = _original.read_text(root / name)
        theirs, goal = sweep.get("metric.name", str), sweep.get("metric.goal", str) or "minimize"
        if theirs is None or goal not in ("minimize", "maximize"):
            raise Refused(
                f"{path}: metric: must be a table such as {{name: val_loss, goal: minimize}}, with a name that the "
                "program logs: state it in a copy beside it"
            )
        stated_parameters = sweep.get("parameters", dict) or {}
        seeds = [each for each in stated_parameters if is_seed(each)]
        defaults = _defaults(root / name)
        space = {
            each: parameter(each, table, defaults.get(each.replace("-", "_")))
            for each, table in stated_parameters.items() if each not in seeds
        }  # fmt: skip
        copied, not_copied = _original.repository_files(root)
        title = sweep.get("name", str) or sweep.get("project", str) or path.parent.resolve().name
        as_json = [each for each in space if not all(map(is_plain, _values(stated_parameters[each])))]
        said = sweep.get("description", str) or f"{name} gets the parameters of a trial and logs `{theirs}`."
        cap = sweep.get("run_cap", int)
        return _runner.imported(
            title, f"the W&B sweep {path}", name, said,
            program=root / name,
            metric=theirs,
            how={"command": command, "says_ready": "wandb" in text, "keeps_files": True, "as_json": as_json},
            keys={"direction": goal, "budget_seconds": BUDGET_SECONDS, **sections(space)},
            originals=copied,
            seeds=seeds,
            stand_ins=("wandb", _runner.TENSORBOARD),
            left=(*_of_parameters(space, defaults), *not_copied, *_left(sweep, text)),
            warnings=(_runner.warning(f"{REPOSITORY}/{name}", theirs), *([] if seeds else [SEEDS])),
            options=("--proposer", METHODS[method], *(("--trials", str(cap)) if cap else ())),
        )  # fmt: skip


def _sweep(place: str) -> Table | str:
    path = Path(place)
    if path.is_dir():
        path /= USUAL
    return _original.yaml_table(path, "method", "parameters")


def _command(sweep: Table) -> list[str]:
    words = list(map(str, sweep.get("command", list) or COMMAND))
    if unknown := [word for word in words if word.startswith("${") and word not in MACROS]:
        raise Refused(f"{sweep.path}: command: {unknown[0]} has no value here: replace it in a copy of the file")
    return words


def _defaults(program: Path) -> dict[str, Any]:
    """The program's own defaults, as far as they are seen, with _ for - in their names."""
    try:
        options = _source.options(_source.parsed(program)).values
    except Refused:  # of another Python, or in another language
        return {}
    return {name.replace("-", "_"): _number(value) for name, value in options.items()}


def _of_parameters(space: Mapping[str, ConvertedParameter], defaults: Mapping[str, Any]) -> Iterator[Term]:
    for name, one in space.items():
        default = defaults.get(name.replace("-", "_"))
        if one.lost:
            yield Term(name, one.lost)
        if one.table and one.table["default"] != default:
            seen = "is not seen" if default is None else f"{default!r} is not among its values"
            yield Term(f"{name}: the program's default", f"{seen}: the baseline has {one.table['default']!r}")


def _left(sweep: Table, text: str) -> Iterator[Term]:
    for key in dict.fromkeys(key.partition(".")[0] for key in sweep.unread()):
        yield Term(key, "of W&B's agent or site; how a search ends and stops trials early are options: docs/options.md")
    for word in (word for word in ("WandbLogger", "WandbCallback", "define_metric") if word in text):
        yield Term(word, "not followed: the last value that wandb.log or wandb.summary gets is the score")
    yield Term("no time limit in a sweep", f"budget_seconds = {BUDGET_SECONDS}, a guess: state your own")


def parameter(name: str, stated: Any, default: object) -> ConvertedParameter:
    """A parameter of a sweep, with the program's own default. Refused if it is none.

    See https://docs.wandb.ai/guides/sweeps/sweep-config-keys for what each distribution means.
    """
    if not isinstance(stated, Mapping) or "parameters" in stated or not isinstance(stated.get("values") or [], list):
        raise Refused(
            f"parameters.{name}: must be a table with value, values or min and max, got {stated!r}: of nested "
            "parameters write each at the top, in a copy of the YAML, and have the program nest them"
        )
    if stated.get("values") or "value" in stated:
        values = _values(stated)
        lost = "its probabilities" if "probabilities" in stated else ""
        if not all(map(is_plain, values)):
            return choice([json.dumps(value, default=str) for value in values], lost=lost)
        return choice(values, default, lost)
    both_whole = type(stated.get("min")) is int and type(stated.get("max")) is int
    kind = str(stated.get("distribution") or ("int_uniform" if both_whole else "uniform"))
    base, step = kind.removeprefix("q_"), stated.get("q", 1) if kind.startswith("q_") else None
    low, high = _number(stated.get("min")), _number(stated.get("max"))
    if base not in DISTRIBUTIONS:
        raise Refused(f"parameters.{name}: distribution {kind!r} is not carried: state min and max, or values")
    is_range = is_number(low) and is_number(high) and low <= high and not (base == LOG and low <= 0)
    if not is_range or (step is not None and not (is_number(step) and step > 0)):
        raise Refused(f"parameters.{name}: {kind} from {low!r} to {high!r} is no range")
    whole = base == "int_uniform" or isinstance(step, int)
    if step is not None:  # W&B rounds to multiples of q
        low, high = round(low / step) * step, round(high / step) * step
    return number(low, high, whole=whole, log=base == LOG, step=step, default=default)


def _values(stated: Mapping[str, Any]) -> list[Any]:
    """The values of a parameter that has no range; one for all that is none."""
    return [_number(value) for value in stated.get("values") or [stated.get("value", 0)]]


def _number(value: object) -> Any:
    """The value; a text such as `1e-4`, which YAML does not take for a number, as that number."""
    return float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value
