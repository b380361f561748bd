"""Making gymnasium environments by name, with errors that state the remedy."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gymnasium

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
    except Exception as error:  # whatever a foreign environment raises
        raise ValueError(
            f"{env_id} cannot be built with kwargs {kwargs} ({in_words(error)}): correct kwargs in {section}"
        ) from error


def in_words(error: Exception) -> str:
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


@contextmanager
def made(sources: Sequence[EnvSource]) -> Iterator[list[Env]]:
    """An environment of each source while the block runs."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(source.make())) for source in sources]
