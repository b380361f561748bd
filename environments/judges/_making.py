"""Making gymnasium environments by name, with errors that state the remedy."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from environments.judges._leaves import Leaf, leaves, pick, tree

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Space

    Env = gymnasium.Env[Any, Any]  # its observations are known only to its space

_EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "phys2d": "jax", "tabular": "jax"}
"""The extra of gymnasium that installs what `gymnasium.envs.<part>` needs."""


def make(env_id: str, max_episode_steps: int | None, kwargs: dict[str, Any], section: str) -> Env:
    """Make one environment; `section` of environment.toml holds the kwargs.

    Raises:
        ValueError: there is none of that name, or it cannot be made.
    """
    import gymnasium

    name = _registered(env_id)
    try:
        return gymnasium.make(name, max_episode_steps, disable_env_checker=True, **kwargs)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        entry_point = str(gymnasium.registry[name].entry_point)
        raise ValueError(_uninstalled(env_id, entry_point, error)) from error
    except (Exception, SystemExit) as error:  # whatever a foreign environment raises
        raise ValueError(
            f"{env_id} cannot be built with kwargs {kwargs} ({in_words(error)}): correct kwargs in {section}"
        ) from error


def in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _registered(env_id: str) -> str:
    """The registered name of `env_id`, after importing its module if it names one."""
    import gymnasium

    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(_uninstalled(env_id, "", error)) from error
        except (Exception, SystemExit) as error:  # whatever a foreign module raises
            raise ValueError(f"{env_id}: the module {module} cannot be imported ({in_words(error)})") from error
    if name not in gymnasium.registry:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3, cutoff=0.6)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Is the package that registers it installed?"
        raise ValueError(
            f"no gymnasium environment is registered as {name!r}. {hint} (`module:id` imports a module first)"
        )
    return name


def _uninstalled(env_id: str, entry_point: str, error: Exception) -> str:
    extra = next((extra for part, extra in _EXTRAS.items() if f"gymnasium.envs.{part}" in entry_point), None)
    if extra is not None:
        remedy = f'pip install "gymnasium[{extra}]"'
    elif isinstance(error, ModuleNotFoundError) and error.name is not None:
        remedy = f"install the package that provides the module {error.name.partition('.')[0]!r}"
    else:
        remedy = "install what it asks for"
    return f"{env_id} needs a package that is not installed ({error}): {remedy}"


@dataclass(frozen=True)
class EnvSource:
    """What an environment is made from: see `make`."""

    env_id: str
    max_episode_steps: int | None
    kwargs: dict[str, Any]
    section: str

    def make(self) -> Env:
        return make(self.env_id, self.max_episode_steps, self.kwargs, self.section)


def number_of(reward: object) -> float:
    """A reward as a number; an array with one element is one. Raises TypeError or ValueError for anything else."""
    return float(reward.item() if isinstance(reward, np.ndarray) else reward)  # type: ignore[arg-type]


def examine(sources: Mapping[str, EnvSource]) -> None:
    """Check, by one reset and one step of each, that environments can be judged, and that one policy can play all.

    Raises:
        ValueError: they cannot be judged.
    """
    spaces = {name: _spaces(source) for name, source in sources.items()}
    first = next(iter(spaces))
    for name in spaces:
        for role, one, other in zip(("observation", "action"), spaces[first], spaces[name], strict=True):
            if one != other:
                raise ValueError(
                    f"sources {first!r} and {name!r} have different {role} spaces, {one} and {other}: one policy must "
                    "be able to play both, so correct their kwargs"
                )


def leaves_of(source: EnvSource) -> tuple[list[Leaf], list[Leaf]]:
    """The leaves of an environment's observations and actions. Raises ValueError: it cannot be judged."""
    observation, action = _spaces(source)
    return leaves(tree(observation, "observation")), leaves(tree(action, "action"))


def _spaces(source: EnvSource) -> tuple[Space[Any], Space[Any]]:
    name = source.env_id
    with closing(source.make()) as env:
        observation = tree(env.observation_space, "observation")
        tree(env.action_space, "action")
        if env.spec is None or env.spec.max_episode_steps is None:
            raise ValueError(
                f"{name} has no time limit, so an episode may never end: set max_episode_steps in [control]"
            )
        try:
            first, _ = env.reset(seed=0)
            shapes = [(leaf, np.shape(pick(leaf, first))) for leaf in leaves(observation)]
            env.action_space.seed(0)
            _, reward, *_ = env.step(env.action_space.sample())
        except (Exception, SystemExit) as error:  # whatever a foreign environment raises
            raise ValueError(
                f"{name} with kwargs {source.kwargs} fails at its reset or its first step ({in_words(error)}): "
                f"correct kwargs in {source.section} or the environment"
            ) from error
        for leaf, shape in shapes:
            if shape != leaf.shape:
                raise ValueError(
                    f"{name} observes shape {shape} in leaf '{leaf.path}', its space says {leaf.shape}: "
                    "correct the environment's observation_space"
                )
        try:
            number_of(reward)
        except (TypeError, ValueError):
            raise ValueError(f"{name}: step() returned the reward {reward!r}: it must be a number") from None
        return env.observation_space, env.action_space
