"""W&B sweeps: method, metric, parameters with their distributions and the command of a sweep's YAML."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from environments import FILE
from environments.plugins import Refused
from tasks.importing import HISTORY, Imported, Importer, Recognised, Term, _yaml, environment_toml
from tasks.importing import _repository as repository
from tasks.importing.reading.parameters import metric_name
from tasks.importing.reading.program_folder import entries, folder_of
from tasks.importing.reading.programs import program
from tasks.importing.reading.python_defaults import defaults, logged
from tasks.importing.reading.sweep_parameters import SweepParameters, converted

METHODS = {"grid": "grid", "random": "random_search", "bayes": "tpe"}
"""The proposers that search as W&B's methods do."""
COMMAND = ["${env}", "${interpreter}", "${program}", "${args}"]
MACROS = (*COMMAND, "${args_no_hyphens}", "${args_no_boolean_flags}", "${args_json}", "${args_json_file}")
SUFFIXES = (".yaml", ".yml")
USUAL = ("sweep.yaml", "sweep.yml")
BUDGET_SECONDS = 600
OURS = ("sweep_run.py", "sweep.json", "standin", "logged_metric.py", "imported.md", FILE, HISTORY)
"""Files that are written here beside the program's."""


class WandbSweep(Importer):
    """A W&B sweep: its YAML, or a folder with a sweep.yaml."""

    def recognise(self, place: str) -> Recognised:
        path = _file(place)
        if path is None:
            return Recognised(False, f"no file {' or '.join(SUFFIXES)}, and no folder with {' or '.join(USUAL)}")
        try:
            sweep = _read(path)
        except Refused as unreadable:
            return Recognised(False, str(unreadable))
        if lacks := [key for key in ("method", "parameters") if key not in sweep]:
            return Recognised(False, f"{path.name} has no {' and no '.join(lacks)} at its top")
        return Recognised(True, f"{path.name} has method and parameters at its top")

    def convert(self, place: str) -> Imported:
        path = _file(place)
        assert path is not None, "it was recognised"
        return _imported(path, _read(path))


def _file(place: str) -> Path | None:
    path = Path(place)
    if path.is_dir():
        return next((path / name for name in USUAL if (path / name).is_file()), None)
    return path if path.is_file() and path.suffix in SUFFIXES else None


def _read(path: Path) -> dict[str, Any]:
    found = _yaml.read(path)
    if not isinstance(found, dict):
        raise Refused(f"{path}: holds {type(found).__name__}, not a table")
    return found


def _imported(path: Path, sweep: Mapping[str, Any]) -> Imported:
    method, parameters = sweep.get("method"), sweep.get("parameters")
    if not isinstance(method, str) or method not in METHODS:
        raise Refused(f"{path}: method: must be {', '.join(METHODS)}, got {method!r}")
    if not isinstance(parameters, Mapping) or not parameters:
        raise Refused(f"{path}: parameters: must be a table that is not empty, got {parameters!r}")
    command = _command(path, sweep)
    name = _program(path, sweep, command)
    root = folder_of(path, name)
    text = (root / name).read_text("utf-8-sig", "replace")
    made = converted(parameters, defaults(text) if name.endswith(".py") else {})
    metric, direction, doubts = _metric(path, sweep, text)
    copied, not_copied = entries(root, name, OURS)
    title = str(sweep.get("name") or sweep.get("project") or path.parent.resolve().name)
    space = {key: one.table for key, one in made.found.items() if one.table}
    fixed = {key: one.fixed for key, one in made.found.items() if not one.table}
    keys: dict[str, Any] = {
        "title": title, "metric": metric_name(metric), "direction": direction, "budget_seconds": BUDGET_SECONDS,
        "trainer": "command", "program": sorted({*copied, "sweep_run.py", "sweep.json", "standin"}),
        "editable": [name], "train_cmd": "python sweep_run.py", "judge": "command",
        "command": {"eval_cmd": f"python logged_metric.py {{out}} {{result}} {_quoted(metric)}"}, "space": space,
    }  # fmt: skip
    if fixed:
        keys["fixed"] = fixed
    if requires := _requires(root, name):
        keys["requires"] = requires
    how = {
        "program": name, "command": command, "constants": made.constants, "as_json": made.as_json, "paths": made.paths,
        "parameters": list(made.found),
    }  # fmt: skip
    files: dict[str, str | Path] = {
        **{entry: root / entry for entry in copied},
        FILE: environment_toml(keys, f"From the W&B sweep {path.name}; imported.md has the account."),
        "sweep.json": json.dumps(how, indent=1) + "\n",
        "sweep_run.py": program("sweep_run.py"),
        "standin/wandb.py": program("wandb_standin.py"),
        "logged_metric.py": program("logged_metric.py"),
        "program.md": PROGRAM_MD.format(
            title=title, name=name, metric=metric, said=str(sweep.get("description") or "").strip()
        ),
    }
    return Imported(
        name=title, origin=f"the W&B sweep {path}", files=files,
        carried=tuple(_carried(sweep, made, command, method, metric, direction)),
        left=tuple(_left(sweep, made, not_copied)), warnings=(*doubts, *WARNINGS), options=_options(sweep, method),
    )  # fmt: skip


def _quoted(word: str) -> str:
    """A word of a command line in which braces are placeholders."""
    return shlex.quote(word.replace("{", "{{").replace("}", "}}"))


def _command(path: Path, sweep: Mapping[str, Any]) -> list[str]:
    command = sweep.get("command", COMMAND)
    if not isinstance(command, list) or not all(isinstance(word, str | int | float) for word in command):
        raise Refused(f"{path}: command: must be a list of words, got {command!r}")
    words = [str(word) for word in command]
    if unknown := [word for word in words if word.startswith("${") and word not in MACROS]:
        raise Refused(f"{path}: command: {unknown[0]} has no value here: replace it in a copy of the file beside it")
    return words


def _program(path: Path, sweep: Mapping[str, Any], command: list[str]) -> str:
    stated = sweep.get("program") or next((word for word in command if word.endswith(".py")), None)
    if not isinstance(stated, str) or not stated.strip():
        raise Refused(
            f"{path}: program: is missing, and no word of command ends in .py: state it in a copy of the file"
        )
    name = stated.strip().removeprefix("./")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise Refused(f"{path}: program: {name} leads elsewhere: state it from the folder that the sweep starts in")
    return name


def _metric(path: Path, sweep: Mapping[str, Any], text: str) -> tuple[str, str, tuple[str, ...]]:
    """The metric, its direction, and what is doubtful of them."""
    metric = sweep.get("metric")
    if isinstance(metric, Mapping) and isinstance(metric.get("name"), str):
        goal = metric.get("goal", "minimize")
        if goal not in ("minimize", "maximize"):
            raise Refused(f"{path}: metric.goal: must be minimize or maximize, got {goal!r}")
        return metric["name"], goal, ()
    names = logged(text)
    if len(names) != 1:
        what = f"its program logs {', '.join(names)}" if names else "none is seen in its program"
        raise Refused(
            f"{path}: metric: is missing, and {what}: add metric: {{name: ..., goal: ...}} to a copy beside it"
        )
    way = "minimize" if any(word in names[0].lower() for word in ("loss", "err", "perplexity", "bpb")) else "maximize"
    doubt = f"the sweep names no metric; {names[0]!r} is the only one that its program logs, and {way} is a guess: "
    return names[0], way, (f"{doubt}see metric and direction in environment.toml",)


def _requires(root: Path, name: str) -> dict[str, str]:
    """The installed modules that the program imports at its top, but for wandb."""
    if not name.endswith(".py"):
        return {}
    found = repository.required_modules({name: repository.parsed(root / name)}, root)
    return {module: command for module, command in found.items() if module != "wandb"}


def _carried(
    sweep: Mapping[str, Any], made: SweepParameters, command: list[str], method: str, metric: str, direction: str
) -> Iterator[Term]:
    yield Term(f"method: {method}", f"--proposer {METHODS[method]}")
    yield Term(f"metric: {metric}", f"metric, {direction}, taken by logged_metric.py from what the program logs")
    for name, one in made.found.items():
        yield Term(name, one.words)
    for name, value in made.constants.items():
        yield Term(name, f"always {value!r}: in sweep.json")
    yield Term("command", f"sweep_run.py runs it: {' '.join(command)}")
    yield Term("the package wandb", "standin/wandb.py: config, log, summary and define_metric, without an account")
    if "run_cap" in sweep:
        yield Term("run_cap", f"--trials {sweep['run_cap']}")


def _left(sweep: Mapping[str, Any], made: SweepParameters, not_copied: Sequence[Term]) -> Iterator[Term]:
    yield from (*made.left, *not_copied)
    if "early_terminate" in sweep:
        yield Term("early_terminate", "its brackets; trials that fall behind are stopped early anyway: --cancel")
    if isinstance(sweep.get("metric"), Mapping) and "target" in sweep["metric"]:
        yield Term("metric.target", "no stopping at a score: the search ends by --trials, --hours or --until")
    yield Term("no time limit in a sweep", f"budget_seconds = {BUDGET_SECONDS}, a guess: state your own")
    yield Term("runs of this sweep at W&B", "left out: nothing is fetched; history.jsonl takes them, a line each")
    for key in sorted({*sweep} & {"project", "entity", "scheduler", "job", "queue", "imports"}):
        yield Term(key, "of W&B's site")


def _options(sweep: Mapping[str, Any], method: str) -> tuple[str, ...]:
    cap = sweep.get("run_cap")
    trials = ("--trials", str(cap)) if type(cap) is int and cap > 0 else ()
    return (*(() if METHODS[method] == "tpe" else ("--proposer", METHODS[method])), *trials)


WARNINGS = (
    "the score is what the program logs, so it comes from the program that is scored. With parameters alone that is "
    "your own code. Before you let code be edited (--proposer llm_diff, agent), let logged_metric.py, which is "
    "frozen, measure the model that training leaves in OUT/run",
    "a program with fixed seeds gives one value under every seed of a trial: let it use the seed of config.json, or "
    "state deterministic = true in environment.toml",
)
PROGRAM_MD = """\
# {title}

Imported from a W&B sweep. {name} is started with the parameters of a trial and logs `{metric}`.
{said}
"""
