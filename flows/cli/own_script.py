"""A user's own two commands as an environment: `compare --train "python train.py ..." --eval "python eval.py ..."`.

The folder in which the command is typed is copied with it, so that both arms run what stood there at the beginning.
Hidden files, virtual environments and caches stay out; what is large stays where it is, and can be read.

`--rl-zoo` compares RL Zoo's tuned hyperparameters with Stable-Baselines3's defaults: trained by `rl_zoo3.train` of the
Python that a shell would start, and judged by a hundred episodes beside it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Set
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import tomlkit
import yaml  # type: ignore[import-untyped]

import environments
from environments import FILE
from environments.plugins import Refused
from environments.space import Value
from flows.cli.single_runs import Question, Side
from flows.cli.validation import placeholders
from flows.spec.campaign_spec import check_environment
from tasks.importing._original import LARGEST_BYTES, PASSED_OVER, REPOSITORY
from tasks.importing._runner import PROGRAMS
from tasks.importing.rl_zoo import STEPS, entry_of
from tasks.system.home import home
from tasks.system.secret_places import secret_place

CACHES = shutil.ignore_patterns(".*", *PASSED_OVER)
LOGS = shutil.ignore_patterns("nohup.out", "slurm-*.out", "*.log")
HEADLESS = {"SDL_VIDEODRIVER": "dummy", "WANDB_MODE": "disabled"}
ENGINES = {"out", "seed", "budget_seconds", "device"}
"""Placeholders that are filled in for each run."""
FORM = "--train needs {seed}, {out}, and {config} or a parameter such as {lr}; --eval needs {out}"
Named = tuple[str, str]
"""What a side is called, and its configuration: a file, or JSON."""
OF_THE_TASK = (STEPS, "policy", "env_wrapper", "vec_env_wrapper", "frame_stack")
"""What the defaults have as the tuned ones have it: with another task there is nothing to compare."""
PYTHON_TAG = re.compile(r"!!python/[\w/:.]+")


def question(
    train: str, evaluate: str, a: Named, b: Named, draft: Path, overrides: dict[str, Value], *, folder: Path,
    minutes: float = 60.0, minimize: bool = False,
) -> Question:  # fmt: skip
    """Two configurations of a script, in an environment that is written below `draft`. Nobody is asked about it: the
    user has typed its commands. Raises Refused: a placeholder is missing or has no value, or a side cannot be read.

    Args:
        train: The command, as `evaluate` as it was typed in `folder`.
        minutes: Of one training at most.
    """
    wanted = placeholders(train)
    if not (wanted >= {"seed", "out"} and "out" in placeholders(evaluate) and wanted - ENGINES):
        raise Refused(f"{FORM}: got --train {train!r}, --eval {evaluate!r}")
    place = draft / "environment" / folder.resolve().name
    links = _copy(folder, project := place / REPOSITORY)
    mine, theirs = (_side(arm, *named, wanted - ENGINES, folder, project) for arm, named in (("a", a), ("b", b)))
    data = [*links.values()]
    training, judging = (command.replace("{out}", "{out}/model") for command in (train, evaluate))
    keys = {
        "metric": "score", "direction": "minimize" if minimize else "maximize",
        "budget_seconds": 60 * minutes, "grace_seconds": 30.0,
        "program": ["train.py", "run.json", REPOSITORY], "python": interpreter(train, folder),
        "readable": data, "trainer": "command", "train_cmd": f"python train.py -- {training}", "judge": "command",
        "command": {
            "eval_cmd": f"python train.py judge {{out}} {{result}} -- {judging}",
            "readable": data, "total_seconds": max(600.0, 60 * minutes),
        },
        "limits": {"least_seconds": 0.0, "scratch_gb": 4.0},
        "space": {
            name: {"type": "choice", "values": [*dict.fromkeys((default, mine.params[name]))], "default": default}
            for name, default in theirs.params.items()
        },
    }  # fmt: skip
    shutil.copyfile(PROGRAMS / "run.py", place / "train.py")
    (place / "run.json").write_text(json.dumps({"links": links, "variables": HEADLESS}))
    (place / FILE).write_text(tomlkit.dumps(keys))
    environment = environments.load(place, overrides)
    check_environment(environment)
    return Question({"a": mine, "b": theirs}, environment, overrides)


def _copy(folder: Path, project: Path) -> dict[str, str]:
    """Copy what is small at the top of a folder, and return where the rest lies, by name."""
    names, links = [path.name for path in folder.iterdir()], dict[str, str]()
    project.mkdir(parents=True)
    for path in sorted(folder / name for name in {*names} - CACHES("", names) - LOGS("", names)):
        is_venv = (path / "pyvenv.cfg").is_file()
        if is_venv or os.path.realpath(path) == os.path.realpath(home()) or project.is_relative_to(path):
            continue
        below = [path, *path.rglob("*")]
        for file in below:
            there = Path(os.path.realpath(file))  # a link may lead to itself
            if file.is_symlink() and not there.is_relative_to("/dev") and (secret := secret_place(there)):
                raise Refused(f"{file} is a link to {secret}, which programs may not read: remove it")
        sizes = accumulate(file.stat().st_size for file in below if file.is_file())
        away = (file for file in below[1:] if file.is_symlink() and file.is_dir() and not _is_inside(file, path))
        if any(size > LARGEST_BYTES for size in sizes) or any(away):
            links[path.name] = str(path.resolve())
        elif path.is_dir():
            shutil.copytree(path, project / path.name, ignore=CACHES, ignore_dangling_symlinks=True)
        elif path.is_file():
            shutil.copy2(path, project)
    return links


def _is_inside(link: Path, folder: Path) -> bool:
    """Whether a link leads to another place of the folder, and to none that holds itself."""
    there = link.resolve()
    return there.is_relative_to(folder.resolve()) and not link.parent.resolve().is_relative_to(there)


def _side(arm: str, name: str, text: str, wanted: Set[str], folder: Path, project: Path) -> Side:
    """A side with the value of each placeholder that is wanted; a foreign configuration is laid into the project."""
    is_file = not text.lstrip().startswith("{")
    content = (folder / text).read_bytes() if is_file else text.encode()
    try:
        table = _parsed(content) if not is_file or text.endswith((".json", ".yaml", ".yml")) else None
    except (yaml.YAMLError, ValueError, RecursionError) as wrong:
        raise Refused(f"{text}: {wrong}") from wrong
    values, params = table if isinstance(table, dict) else {}, dict[str, Value]()
    for key in sorted(wanted):
        if key == "config":
            root = project.resolve()
            file = (root / text).resolve() if is_file else root
            if not (file.is_file() and file.is_relative_to(root)):  # one that is copied lies beside what it includes
                file = root / f"nightshift-{arm}" / (Path(text).name if is_file else "config.json")
                file.parent.mkdir()
                file.write_bytes(content)
            params[key] = file.relative_to(root).as_posix()
        elif isinstance(value := values.get(key), Value):
            params[key] = value
        else:
            raise Refused(f"{text} has no plain value for {{{key}}} of --train: it has {', '.join(map(str, values))}")
    return Side(name, params)


def _parsed(content: bytes) -> Any:
    """What JSON or YAML says; YAML takes no tabs, and JSON no comments."""
    with suppress(ValueError):
        return json.loads(content)
    return yaml.safe_load(content)


def of_study(place: str, b: str | None) -> tuple[tuple[Named, Named], bool]:
    """The best trial of an Optuna study against its median trial, or against `b`: a file, JSON, or `default`; and
    whether it minimises.

    A seed among the parameters is left out, since a run has its own. Refused if none is finished.
    """
    from tasks.importing._parameters import is_seed
    from tasks.importing.optuna_study import best_first

    def side(at: int, what: str) -> Named:
        params = {name: value for name, value in trials[at].params.items() if not is_seed(name)}
        return f"trial {trials[at].number}, {what} of {len(trials)}", json.dumps(params)

    study, trials = best_first(place)
    if len(trials) < 1 + (b is None):
        raise Refused(f"--optuna: study {study.study_name!r} has {len(trials)} finished trials")
    if b is None:
        other = side(len(trials) // 2, "the median")
    else:
        other = ("the script's own values", "{}") if b == "default" else (b, b)
    return (side(0, "the best"), other), study.directions[0].name == "MINIMIZE"


def of_rl_zoo(place: str, minutes: float, draft: Path, overrides: dict[str, Value]) -> Question:
    """Both sides, of an entry `hyperparams/ppo.yml#CartPole-v1` or a folder of logs, as `question` has them.
    Raises Refused: there is no such entry or folder.
    """
    found = _of_logs(Path(place)) if Path(place).is_dir() else entry_of(place)
    if isinstance(found, str):
        raise Refused(f"--rl-zoo {place}: {found}: give a file of hyperparameters, or a folder of rl_zoo3.train")
    file, env, tuned = found
    algo = file.stem
    default = {name: tuned[name] for name in OF_THE_TASK if name in tuned}
    project = draft / f"{algo}-{env}".replace("/", "-")
    project.mkdir()
    shutil.copy(PROGRAMS / "zoo_episodes.py", project)
    for name, values in (("tuned", tuned), ("default", default)):
        (draft / f"{name}.yml").write_text(yaml.safe_dump({env: values}))
    a, b = (f"the tuned {algo} of {env}", str(draft / "tuned.yml")), ("SB3's defaults", str(draft / "default.yml"))
    options = "--conf-file {config} --seed {seed} -f {out} --eval-freq -1"
    train = f"python -m rl_zoo3.train --algo {algo} --env {env} {options}"
    evaluate = f"python zoo_episodes.py {algo} {env} {{out}} {{seed}} 100"
    return question(train, evaluate, a, b, draft, overrides, folder=project, minutes=minutes)


def _of_logs(folder: Path) -> tuple[Path, str, dict[str, Any]] | str:
    """The same of a folder such as logs/ppo/CartPole-v1_1, as `rl_zoo3.train` leaves it."""
    found = [*folder.rglob("args.yml")]
    if len(found) != 1:
        return f"there are {len(found)} args.yml below it, not one"
    files = (found[0], found[0].with_name("config.yml"))
    # Ordered dictionaries and tuples, which without their tags are lists.
    stated, tuned = (dict(yaml.safe_load(PYTHON_TAG.sub("", each.read_text()))[0]) for each in files)
    if stated.get("env_kwargs"):
        return f"its env_kwargs {stated['env_kwargs']} are not carried"
    if stated.get(STEPS, -1) > 0:  # `-n`, which config.yml does not have
        tuned[STEPS] = stated[STEPS]
    return Path(stated["algo"]), stated["env"], {key: value for key, value in tuned.items() if value is not None}


def interpreter(command: str, folder: Path) -> str:
    """The Python that a command names, as `python` of environment.toml; where there is none, the one that runs this."""
    try:
        words = (word for word in shlex.split(command) if re.fullmatch(r"python[\d.]*", Path(word).name))
    except ValueError as wrong:
        raise Refused(f"--train {command}: {wrong}") from wrong
    named = next(words, "python")
    named = named if "/" in named else shutil.which(named) or sys.executable
    try:  # it may be a shim, which chooses one by the folder
        answer = subprocess.check_output([named, "-c", "import sys; print(sys.executable)"], cwd=folder, text=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        raise Refused(f"--train: {named} does not run: {fault}") from fault
    return answer.strip()
