"""W&B sweeps: method, metric, parameters with their distributions and the command of a sweep's YAML."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from tasks.importing import Imported, Term, _original, _runner
from tasks.importing._parameters import ConvertedParameter, choice, is_number, is_seed, number

METHODS = {"grid": "grid", "random": "random_search", "bayes": "tpe"}
"""The proposers that search as W&B's methods do."""
COMMAND = ["${env}", "${interpreter}", "${program}", "${args}"]
MACROS = (*COMMAND, "${args_no_boolean_flags}", "${args_no_hyphens}")
EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
LOG = "log_uniform_values"
DISTRIBUTIONS = ("uniform", "int_uniform", LOG)
"""Those that are carried, each also with q_ before it."""


def read(place: str) -> Imported | str:
    """A W&B sweep: its YAML, or a folder with a sweep.yaml."""
    sweep = _original.yaml_table(Path(place), "method", "parameters", inside="sweep.yaml")
    if isinstance(sweep, str):
        return sweep
    path, method = sweep.path, sweep.get("method", str)
    command = list(map(str, sweep.get("command", list) or COMMAND))
    if unknown := [word for word in command if word.startswith("${") and word not in MACROS]:
        raise Refused(f"{path}: command: {unknown[0]} has no value here: replace it in a copy of the file")
    stated = sweep.get("program", str) or next((word for word in command if word.endswith(".py")), "")
    if not (name := stated.strip().removeprefix("./")):
        raise Refused(f"{path}: program: is missing, and no word of command ends in .py: state it in a copy")
    root = _original.folder_with([name], path)
    metric, goal = sweep.get("metric.name", str), sweep.get("metric.goal", str) or "minimize"
    if metric is None or goal not in ("minimize", "maximize"):
        raise Refused(
            f"{path}: metric: must be a table such as {{name: val_loss, goal: minimize}}, with a name that the "
            "program logs: state it in a copy beside it"
        )
    parameters, defaults = sweep.get("parameters", dict) or {}, _defaults(root / name)
    files, left = _original.repository_files(root)
    space: dict[str, ConvertedParameter] = {}
    for each, said in ((str(name), said) for name, said in parameters.items()):  # YAML takes `on` for True
        default = defaults.get(each.replace("-", "_"))
        if isinstance(one := parameter(said, default), str):
            left.append(Term(f"parameter {each}", f"{one}: the program's own value stays"))
            continue
        space[each] = one
        if one.table and (chosen := one.table["default"]) != default and not is_seed(each):
            left.append(Term(each, f"its default is not seen, or not in its range: the baseline has {chosen!r}"))
    title = sweep.get("name", str) or sweep.get("project", str) or path.parent.resolve().name
    text = sweep.get("description", str) or f"{name} gets the parameters of a trial and logs `{metric}`."
    cap = sweep.get("run_cap", int)
    for key in dict.fromkeys(key.partition(".")[0] for key in sweep.unread()):
        left.append(Term(key, "of W&B's agent or site; when a search or a trial ends are options: docs/options.md"))
    return _runner.imported(
        title, f"the W&B sweep {path}", name, text,
        program=root / name,
        metric=metric,
        how={"command": command, "says_ready": "wandb" in _original.read_text(root / name), "keeps_files": True},
        keys={"direction": goal},
        originals=files,
        parameters=space,
        stand_ins=("wandb", _runner.TENSORBOARD),
        left=left,
        options=("--proposer", METHODS.get(method or "", "tpe"), *(("--trials", str(cap)) if cap else ())),
    )  # fmt: skip


def _defaults(program: Path) -> dict[str, Any]:
    """The program's own defaults, as far as they are seen, with _ for - in their names."""
    try:
        options = _original.options(_original.parsed(program)).values
    except Refused:  # of another Python, or in another language
        return {}
    return {name.replace("-", "_"): _number(value) for name, value in options.items()}


def parameter(stated: Any, default: object) -> ConvertedParameter | str:
    """A parameter of a sweep, with the program's own default, or why it is not carried.

    See https://docs.wandb.ai/guides/sweeps/sweep-config-keys for what each distribution means.
    """
    if not isinstance(stated, Mapping) or "parameters" in stated:
        return "nested, or no table"
    if "value" in stated or isinstance(stated.get("values"), list):
        lost = "its probabilities" if "probabilities" in stated else ""
        return choice([_number(value) for value in stated.get("values", [stated.get("value")])], default, lost)
    both_whole = type(stated.get("min")) is int and type(stated.get("max")) is int
    kind = str(stated.get("distribution") or ("int_uniform" if both_whole else "uniform"))
    base, step = kind.removeprefix("q_"), stated.get("q", 1) if kind.startswith("q_") else None
    low, high = _number(stated.get("min")), _number(stated.get("max"))
    is_range = is_number(low) and is_number(high) and low <= high and not (base == LOG and low <= 0)
    if base not in DISTRIBUTIONS or not is_range or not (step is None or (is_number(step) and step > 0)):
        return f"{kind} from {low!r} to {high!r} is no range here"
    if step is not None:  # W&B rounds to multiples of q
        low, high = round(low / step) * step, round(high / step) * step
    return number(
        low, high, whole=base == "int_uniform" or isinstance(step, int), log=base == LOG, step=step, default=default
    )


def _number(value: object) -> Any:
    """The value; a text such as `1e-4`, which YAML does not take for a number, as that number."""
    return float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value
