"""`compare --rl-zoo`: RL Zoo's tuned hyperparameters of an environment against Stable-Baselines3's defaults.

Trained by `rl_zoo3.train` of the Python that a shell would start, and judged by a hundred episodes beside it.
"""

from __future__ import annotations

import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from environments.plugins import Refused
from environments.space import Value
from flows.cli.own_script import OwnScript
from flows.cli.single_runs import Question
from tasks.importing._original import yaml_table
from tasks.importing.rl_zoo import STEPS

PROGRAM = Path(__file__).parent / "programs/zoo_episodes.py"
OF_THE_TASK = (STEPS, "policy", "env_wrapper", "vec_env_wrapper", "frame_stack")
"""What the defaults have as the tuned ones have it: with another task there is nothing to compare."""
TRAIN = (
    "python -m rl_zoo3.train --algo {algo} --env {env} --conf-file {{config}} --seed {{seed}} -f {{out}} --eval-freq -1"
)
EVALUATE = "python zoo_episodes.py {algo} {env} {{out}} {{seed}} 100"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Also reads the ordered dictionaries and tuples that RL Zoo writes beside a trained model."""


_APPLY = "tag:yaml.org,2002:python/object/apply:collections.OrderedDict"
_Loader.add_constructor(_APPLY, lambda loader, node: OrderedDict(loader.construct_sequence(node, deep=True)[0]))
_Loader.add_constructor("tag:yaml.org,2002:python/tuple", lambda loader, node: loader.construct_sequence(node))


def question(place: str, minutes: float, draft: Path, overrides: dict[str, Value]) -> Question:
    """Both sides, of an entry `hyperparams/ppo.yml#CartPole-v1` or a folder of logs, as `OwnScript.question` has them.

    Raises:
        Refused: there is no such entry or folder.
    """
    algo, env, tuned = _of_logs(Path(place)) if Path(place).is_dir() else _of_entry(place)
    default = {name: tuned[name] for name in OF_THE_TASK if name in tuned}
    project = draft / f"{algo}-{env}"
    project.mkdir()
    shutil.copy(PROGRAM, project)
    for name, values in (("tuned", tuned), ("default", default)):
        (draft / f"{name}.yml").write_text(yaml.safe_dump({env: values}))
    a, b = (f"the tuned {algo} of {env}", str(draft / "tuned.yml")), ("SB3's defaults", str(draft / "default.yml"))
    train, evaluate = (command.format(algo=algo, env=env) for command in (TRAIN, EVALUATE))
    return OwnScript(train, evaluate, project, minutes).question(a, b, draft, overrides)


def _of_entry(place: str) -> tuple[str, str, dict[str, Any]]:
    file, _, env = place.partition("#")
    table = yaml_table(Path(file))
    if isinstance(table, str):
        raise Refused(f"--rl-zoo {place}: {table}: give a file of hyperparameters, or a folder of rl_zoo3.train")
    names = [name for name, entry in table.content.items() if isinstance(entry, dict) and STEPS in entry]
    if env not in names:
        raise Refused(f"--rl-zoo {place}: name an entry, as in {file}#CartPole-v1. It has {', '.join(names) or 'none'}")
    return Path(file).stem, env, table.content[env]


def _of_logs(folder: Path) -> tuple[str, str, dict[str, Any]]:
    """Of a folder such as logs/ppo/CartPole-v1_1, as `rl_zoo3.train` leaves it."""
    file = next(iter(folder.rglob("args.yml")), None)
    if file is None:
        raise Refused(f"--rl-zoo {folder}: there is no args.yml below it: give a folder as rl_zoo3.train leaves it")
    stated, tuned = (yaml.load(each.read_text(), _Loader) for each in (file, file.with_name("config.yml")))
    return str(stated["algo"]), str(stated["env"]), {key: value for key, value in tuned.items() if value is not None}
