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
from flows.cli.arguments import read_text
from flows.cli.own_script import OwnScript

PROGRAM = Path(__file__).parent / "programs/zoo_episodes.py"
STEPS = "n_timesteps"
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


def sides(place: str, folder: Path, minutes: float) -> tuple[OwnScript, list[tuple[str, str]]]:
    """The commands, and both sides: an entry `hyperparams/ppo.yml#CartPole-v1`, or a folder of logs.

    Args:
        folder: Where the configurations are written.

    Raises:
        Refused: there is no such entry or folder.
    """
    algo, env, tuned = _of_logs(Path(place)) if Path(place).is_dir() else _of_entry(place)
    default = {name: tuned[name] for name in OF_THE_TASK if name in tuned}
    project = folder / f"{algo}-{env}"
    project.mkdir(parents=True)
    shutil.copy(PROGRAM, project)
    named = []
    for name, what, values in (("tuned", f"the tuned {algo} of {env}", tuned), ("default", "SB3's defaults", default)):
        (folder / f"{name}.yml").write_text(yaml.safe_dump({env: values}))
        named.append((what, str(folder / f"{name}.yml")))
    train, evaluate = (text.format(algo=algo, env=env) for text in (TRAIN, EVALUATE))
    return OwnScript(train, evaluate, project, minutes), named


def _of_entry(place: str) -> tuple[str, str, dict[str, Any]]:
    file, _, env = place.partition("#")
    entries = _read(Path(file))
    names = [name for name, entry in entries.items() if isinstance(entry, dict) and STEPS in entry]
    if env not in names:
        some = ", ".join(names[:20]) or "none"
        raise Refused(f"--rl-zoo {place}: name an entry of {file}, as in {file}#CartPole-v1. It has {some}")
    return Path(file).stem, env, entries[env]


def _of_logs(folder: Path) -> tuple[str, str, dict[str, Any]]:
    """Of a folder such as logs/ppo/CartPole-v1_1, as `rl_zoo3.train` leaves it."""
    found = next(iter(folder.rglob("args.yml")), None)
    if found is None:
        raise Refused(f"--rl-zoo {folder}: there is no args.yml below it: give a folder as rl_zoo3.train leaves it")
    stated, tuned = _read(found), _read(found.with_name("config.yml"))
    return str(stated["algo"]), str(stated["env"]), {key: value for key, value in tuned.items() if value is not None}


def _read(path: Path) -> dict[str, Any]:
    try:
        content = _Loader(read_text(path, "RL Zoo's")).get_single_data()
    except yaml.YAMLError as wrong:
        raise Refused(f"{path}: {wrong}") from wrong
    if not isinstance(content, dict):
        raise Refused(f"{path}: no table of hyperparameters")
    return dict(content)
