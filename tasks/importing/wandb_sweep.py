"""W&B sweeps: method, metric, parameters with their distributions and the command of a sweep's YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from environments import FILE
from environments.plugins import Refused
from tasks.importing import Imported, Importer, Recognised, Term, _runner, _yaml, environment_toml
from tasks.importing import _repository as repository
from tasks.importing.reading.program_folder import folder_of
from tasks.importing.reading.python_defaults import defaults
from tasks.importing.reading.sweep_parameters import converted

METHODS = {"grid": "grid", "random": "random_search", "bayes": "tpe"}
"""The proposers that search as W&B's methods do."""
COMMAND = ["${env}", "${interpreter}", "${program}", "${args}"]
MACROS = (*COMMAND, "${args_no_hyphens}", "${args_no_boolean_flags}", "${args_json}", "${args_json_file}")
SUFFIXES = (".yaml", ".yml")
USUAL = ("sweep.yaml", "sweep.yml")
BUDGET_SECONDS = 600


class WandbSweep(Importer):
    """A W&B sweep: its YAML, or a folder with a sweep.yaml."""

    def recognise(self, place: str) -> Recognised:
        path = _file(place)
        if path is None:
            return Recognised(False, f"no file {' or '.join(SUFFIXES)}, and no folder with {' or '.join(USUAL)}")
        try:
            sweep = _yaml.read(path)
        except Refused as unreadable:
            return Recognised(False, str(unreadable))
        lacks = [key for key in ("method", "parameters") if not isinstance(sweep, dict) or key not in sweep]
        if lacks:
            return Recognised(False, f"{path.name} has no {' and no '.join(lacks)} at its top")
        return Recognised(True, f"{path.name} has method and parameters at its top")

    def convert(self, place: str) -> Imported:
        path = _file(place)
        assert path is not None, "it was recognised"
        sweep = _yaml.read(path)
        assert isinstance(sweep, dict), "it was recognised"
        return _imported(path, sweep)


def _file(place: str) -> Path | None:
    path = Path(place)
    if path.is_dir():
        return next((path / name for name in USUAL if (path / name).is_file()), None)
    return path if path.is_file() and path.suffix in SUFFIXES else None


def _imported(path: Path, sweep: Mapping[str, Any]) -> Imported:
    method, parameters = sweep["method"], sweep["parameters"]
    if not isinstance(method, str) or method not in METHODS:
        raise Refused(f"{path}: method: must be {', '.join(METHODS)}, got {method!r}")
    if not isinstance(parameters, Mapping) or not parameters:
        raise Refused(f"{path}: parameters: must be a table that is not empty, got {parameters!r}")
    command = _command(path, sweep)
    name = _program(path, sweep, command)
    root = folder_of(path, name)
    text = (root / name).read_text("utf-8-sig", "replace")
    made = converted(parameters, defaults(text))
    theirs, direction = _metric(path, sweep)
    metric = _runner.metric_name(theirs)
    copied, not_copied = repository.repository_files(root)
    title = str(sweep.get("name") or sweep.get("project") or path.parent.resolve().name)
    fixed = {key: one.fixed for key, one in made.found.items() if not one.table}
    keys = _runner.keys(title, metric, direction, name)
    keys["program"].append("standin")
    keys |= {
        "budget_seconds": BUDGET_SECONDS,
        "requires": _requires(root, name),
        "space": {key: one.table for key, one in made.found.items() if one.table},
        **({"fixed": fixed} if fixed else {}),
    }
    how = {
        "command": [name if word == "${program}" else word for word in command], "metric": theirs, "name": metric,
        "says_ready": True, "fixed": made.constants, "as_json": made.as_json, "paths": made.paths, "seeds": made.seeds,
        "keeps_files": True, "variables": {"WANDB_MODE": "offline"},
    }  # fmt: skip
    cap = sweep.get("run_cap")
    options = [] if METHODS[method] == "tpe" else ["--proposer", METHODS[method]]
    return Imported(
        name=title,
        origin=f"the W&B sweep {path}",
        files={
            **copied,
            **_runner.files(how),
            FILE: environment_toml(keys, f"From the W&B sweep {path.name}; imported.md has the account."),
            "standin/wandb.py": _runner.program("wandb.py"),
            "program.md": PROGRAM_MD.format(
                title=title, name=name, metric=theirs, said=str(sweep.get("description") or "").strip()
            ),
        },
        carried=(
            Term(f"method: {method}", f"--proposer {METHODS[method]}"),
            _runner.metric_term(theirs, metric, f"{direction}: the last value that the program logs"),
            *(Term(name, one.words) for name, one in made.found.items()),
            *(Term(name, "the seed of the run") for name in made.seeds),
            *(Term(name, f"always {value!r}: in run.json") for name, value in made.constants.items()),
            Term("command", f"train.py runs it: {' '.join(command)}"),
            *([Term("run_cap", f"--trials {cap}")] if "run_cap" in sweep else []),
        ),
        left=(*made.left, *not_copied, *_left(sweep, text)),
        warnings=(_runner.warning(f"{_runner.REPOSITORY}/{name}", theirs), *([] if made.seeds else [SEEDS])),
        options=(*options, *(("--trials", str(cap)) if type(cap) is int and cap > 0 else ())),
    )


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


def _metric(path: Path, sweep: Mapping[str, Any]) -> tuple[str, str]:
    """The metric and its direction."""
    metric = sweep.get("metric")
    name, goal = (metric.get("name"), metric.get("goal", "minimize")) if isinstance(metric, Mapping) else (None, None)
    if not isinstance(name, str) or goal not in ("minimize", "maximize"):
        raise Refused(
            f"{path}: metric: must be a table such as {{name: val_loss, goal: minimize}}, with a name that the program "
            f"logs, got {metric!r}: state it in a copy beside it"
        )
    return name, goal


def _requires(root: Path, name: str) -> dict[str, str]:
    """The installed modules that the program imports at its top, but for wandb."""
    trees = [repository.parsed(root / name)] if name.endswith(".py") else []
    return {module: how for module, how in repository.required_modules(trees, root).items() if module != "wandb"}


def _left(sweep: Mapping[str, Any], text: str) -> Iterator[Term]:
    if "early_terminate" in sweep:
        yield Term("early_terminate", "its brackets; trials that fall behind are stopped early anyway: --cancel")
    if isinstance(sweep.get("metric"), Mapping) and "target" in sweep["metric"]:
        yield Term("metric.target", "no stopping at a score: the search ends by --trials, --hours or --until")
    for word in (word for word in ("sync_tensorboard", "WandbLogger", "WandbCallback", "wandb.plot") if word in text):
        yield Term(word, "numbers that reach W&B this way are not seen: log the metric by wandb.log")
    yield Term("no time limit in a sweep", f"budget_seconds = {BUDGET_SECONDS}, a guess: state your own")
    yield Term("runs of this sweep at W&B", "left out: nothing is fetched; history.jsonl takes them, a line each")
    for key in sorted({*sweep} & {"project", "entity", "scheduler", "job", "queue", "imports"}):
        yield Term(key, "of W&B's site")


SEEDS = (
    "a program with fixed seeds gives one value under every seed of a trial: let it use AR_SEED of its environment, or "
    "state deterministic = true in environment.toml"
)
PROGRAM_MD = """\
# {title}

Imported from a W&B sweep. {name} is started with the parameters of a trial and logs `{metric}`.
{said}
"""
