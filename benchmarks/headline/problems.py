"""The published problem as folders: the walker from the published start, four robots from it, the original itself."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit

import environments
from benchmarks.campaigns import CHECKOUT, nightshift
from benchmarks.headline.facts import BEST, EPISODES, SOURCE, START, TRANSFER
from environments.space import Value

PROGRAM = CHECKOUT / "tasks/trainers/ppo.py"
TITLES = {"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "half_cheetah": "HalfCheetah-v5", "ant": "Ant-v5"}
ROBOTS = tuple(TRANSFER)
WALKERS: dict[str, dict[str, Any]] = {"walker": {}, "envpool": {"cores": 1, "fixed": {"simulator": "envpool"}}}
"""Changes of environment.toml: as it is, or trained with EnvPool on one core, so that two runs go on side by side."""
SPACE: dict[str, dict[str, Any]] = {
    "learning_rate": {"type": "float", "low": 1e-4, "high": 3e-3, "log": True},
    "num_envs": {"type": "choice", "values": [4, 8, 16, 32, 64, 128, 256]},
    "num_steps": {"type": "choice", "values": [128, 256, 512, 1024]},
    "epochs": {"type": "int", "low": 2, "high": 15},
    "minibatches": {"type": "choice", "values": [4, 8, 16, 32]},
    "gamma": {"type": "choice", "values": [0.98, 0.99, 0.995, 0.999]},
    "gae_lambda": {"type": "choice", "values": [0.9, 0.95, 0.98]},
    "entropy": {"type": "float", "low": 0.0, "high": 0.02},
    "hidden": {"type": "choice", "values": [64, 128, 256, 512]},
    "normalize_observations": {"type": "choice", "values": [False, True]},
    "normalize_rewards": {"type": "choice", "values": [False, True]},
}
"""Around the start, wide enough for what parameters can say of the published best."""
LAYERS = (
    "layers = [nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)]",
    "layers = [nn.Linear(inputs, hidden), *(nn.Linear(hidden, hidden) for _ in range(2)), nn.Linear(hidden, outputs)]",
)
GAINS = ("(math.sqrt(2), math.sqrt(2), gain)", "(*[math.sqrt(2)] * 3, gain)")
STACK = (
    "return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])",
    "return nn.Sequential(layers[0], nn.ELU(), layers[1], nn.ELU(), layers[2], nn.ELU(), layers[3])",
)


def walker(folder: Path, budget: float, episodes: int = EPISODES, name: str = "walker") -> Path:
    """The folder of BipedalWalker from the published start, for a name of WALKERS."""
    place = folder / f"{name}_{budget:g}"
    return _written(place, "bipedal_walker", "BipedalWalker-v3", budget, episodes, **WALKERS[name])


def robot(folder: Path, name: str, budget: float, episodes: int = EPISODES) -> Path:
    """The folder of a robot of the transfer chart, from the same start."""
    return _written(folder / f"{name}_{budget:g}", "hopper", TITLES[name], budget, episodes)


def original(folder: Path, checkout: Path, home: Path) -> Path:
    """The folder that `nightshift env import` makes of a checkout of that repository, whose train.py runs as it is."""
    place = folder / "original"
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        nightshift(home, "env", "import", str(checkout), "--to", str(place), "--trust", "--json")
    return place


def published(walker: Path) -> Path:
    """A spec.toml for a campaign that tries the published best in a folder of BipedalWalker, and then certifies it."""
    entry = {"rationale": "the published best", "params": dict(BEST), "edit": best_edit()}
    document = {
        "environment": str(walker), "proposer": "scripted", "trials": 1,
        "advanced": {"options": {"proposals": [entry]}},
    }  # fmt: skip
    path = walker.with_name(f"published_{walker.name}.toml")
    path.write_text(tomlkit.dumps(document))
    return path


def configuration(name: str, folder: Path) -> tuple[str, ...]:
    """The options of `nightshift try` for one of `start`, `best` and `original`."""
    if name != "best":
        return ()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "best.diff"
    path.write_text(best_edit())
    return "--params", json.dumps(BEST), "--diff", str(path)


def best_edit() -> str:
    """Our program with the networks of the published best, as a unified diff.

    Raises:
        ValueError: the program does not read as it did, so that the edit has to be written anew.
    """
    before = PROGRAM.read_text()
    after = before
    for old, new in (LAYERS, GAINS, STACK):
        if after.count(old) != 1:
            raise ValueError(f"{PROGRAM.name} does not say {old!r} exactly once: write the edit of the best anew")
        after = after.replace(old, new)
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/train.py", "b/train.py")
    return "".join(lines)


def _written(
    place: Path, like: str, gym_id: str, budget: float, episodes: int, fixed: Mapping[str, Value] = {}, **changes: Value
) -> Path:
    """A folder made of a bundled environment, with the published start as its baseline."""
    found = environments.find(like)
    document = tomlkit.parse((found / "environment.toml").read_text()).unwrap()
    document.pop("variants", None)
    document["control"] = {"id": gym_id, "episodes": episodes, "other_episodes": 0, "deterministic": True}
    document |= {"title": f"{gym_id} from the published start", "budget_seconds": float(budget)}
    document |= {"space": _space(START), **changes}
    document["fixed"] = {**{key: value for key, value in START.items() if key not in SPACE}, **fixed}
    place.mkdir(parents=True, exist_ok=True)
    (place / "environment.toml").write_text(tomlkit.dumps(document))
    (place / "program.md").write_text(
        f"# {gym_id}\n\nThe baseline is the configuration that {SOURCE} starts from, in our PPO program, as far as its "
        "parameters can say it; `python -m benchmarks.headline facts` lists what they cannot.\n"
    )
    return place


def _space(defaults: Mapping[str, Value]) -> dict[str, Any]:
    return {name: {**parameter, "default": defaults[name]} for name, parameter in SPACE.items()}
