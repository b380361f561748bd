"""Lanes: the environments of one judgement by the control judge, in processes of their own.

There is one for each core that the slot grants, since an environment's code is somebody's. `PlayedLanes` and the
functions after it work there, `Lanes` is the judge's end. Every lane has its own environment and seed, so its episode
is the same wherever it is stepped, as long as environments share no state of their module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from environments.judges import Misbehaved
from environments.judges._leaves import Column, Leaf, Sample, accept, columns, fault, frame_bytes, leaves, pick, samples
from environments.judges._process import ForeignProcess
from environments.score import LARGEST

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Space

    Env = gymnasium.Env[Any, Any]  # its observations are known only to its space

Spaces = tuple[list[Leaf], list[Leaf]]
"""The leaves of observations and of actions."""


@dataclass(frozen=True)
class EnvSource:
    """What an environment is made from."""

    env_id: str
    max_episode_steps: int | None
    kwargs: dict[str, Any]
    section: str
    """Of environment.toml, with the kwargs."""
    packages: tuple[str, ...] = ()
    """Folders in which modules are looked for after all others."""

    def make(self) -> Env:
        """Raises ValueError: there is none of that name, or it cannot be made; gymnasium says the remedy."""
        import gymnasium

        sys.path += [folder for folder in self.packages if folder not in sys.path]
        try:
            return gymnasium.make(self.env_id, self.max_episode_steps, disable_env_checker=True, **self.kwargs)
        except (Exception, SystemExit) as error:  # whatever a foreign environment raises
            made = f"{self.env_id} cannot be made with kwargs {self.kwargs} of {self.section}"
            raise ValueError(f"{made} ({type(error).__name__}: {error})") from error


class PlayedLanes:
    """Environments of one kind, side by side. Each has its own seed, so its episode is the same in any company."""

    def __init__(self, envs: Sequence[Env], first: int = 0) -> None:
        """`first`: the number of the first lane."""
        self.envs, self._first = envs, first
        self.action_space = envs[0].action_space
        self.seen = leaves(envs[0].observation_space, "observation")
        self.answered = leaves(self.action_space, "action")
        self.active, self._start = np.zeros((2, len(envs)), np.bool_)
        self._shown = [np.zeros((len(envs), *leaf.shape), leaf.dtype) for leaf in self.seen]
        self._steps = 0
        self.returns = [0.0] * len(envs)

    @property
    def frame(self) -> list[Column]:
        """The masks `active` and `episode_start`, and the observations, leaf by leaf."""
        return [self.active, self._start, *self._shown]

    def reset(self, seeds: Mapping[int, int]) -> None:
        """Begin an episode in each of these lanes that is here, with its seed."""
        for lane, env in enumerate(self.envs):
            if (number := self._first + lane) not in seeds:
                continue
            try:
                self._show(lane, env.reset(seed=seeds[number])[0])
            except (Exception, SystemExit) as error:  # whatever a foreign environment raises
                raise _failed(f"at its reset in lane {number}", error) from error
            self.active[lane] = self._start[lane] = True

    def step(self, actions: Sequence[Sample]) -> None:
        """Step the active lanes, each with its action."""
        self._steps += 1
        self._start[:] = False
        for lane in self.active.nonzero()[0].tolist():
            where = f"in lane {self._first + lane} at step {self._steps}"
            try:
                after, reward, terminated, truncated, _ = self.envs[lane].step(actions[lane])
                gain = float(reward.item() if isinstance(reward, np.ndarray) else reward)
                self.active[lane] = not (terminated or truncated)
                if self.active[lane]:
                    self._show(lane, after)
                else:
                    for column in self._shown:
                        column[lane] = 0
            except (Exception, SystemExit) as error:
                raise _failed(where, error) from error
            if not abs(gain) <= LARGEST:  # comparisons with NaN are false
                raise Misbehaved(f"the environment returned reward {gain} {where}")
            self.returns[lane] += gain

    def _show(self, lane: int, observation: Sample) -> None:
        for leaf, column in zip(self.seen, self._shown, strict=True):
            column[lane] = pick(leaf, observation)


def _failed(where: str, error: BaseException) -> Misbehaved:
    return Misbehaved(f"the environment failed {where}: {type(error).__name__}: {error}")


def examine(sources: Mapping[str, EnvSource]) -> Spaces:
    """The spaces that environments share, after one reset and one step of each.

    Raises ValueError: they cannot be judged, or no one policy can play all.
    """
    examined = {name: _examined(source) for name, source in sources.items()}
    first = next(iter(examined))
    for name, spaces in examined.items():
        if spaces != examined[first]:
            raise ValueError(
                f"sources {first!r} and {name!r} have different spaces, {examined[first]} and {spaces}: one policy "
                "must be able to play both, so correct their kwargs"
            )
    observation, action = examined[first]
    return leaves(observation, "observation"), leaves(action, "action")


def _examined(source: EnvSource) -> tuple[Space[Any], Space[Any]]:
    with closing(source.make()) as env:
        if env.spec is None or env.spec.max_episode_steps is None:
            raise ValueError(
                f"{source.env_id} has no time limit, so an episode may never end: set max_episode_steps in [control]"
            )
        try:
            alone = PlayedLanes([env])
            alone.reset({0: 0})
            env.action_space.seed(0)
            alone.step([env.action_space.sample()])
        except (Misbehaved, ValueError) as wrong:
            raise ValueError(f"{source.env_id} with kwargs {source.kwargs} of {source.section}: {wrong}") from wrong
        return env.observation_space, env.action_space


played: PlayedLanes
"""The lanes of this process."""


def begin(sources: Sequence[EnvSource], first: int) -> Spaces:
    """Make environments; `first` is the number of the first lane."""
    global played
    played = PlayedLanes([source.make() for source in sources], first)
    return played.seen, played.answered


def reset(seeds: Mapping[int, int]) -> list[Column]:
    played.reset(seeds)
    return played.frame


def step(actions: Sequence[Column]) -> list[Column]:
    """Take valid actions of all lanes, leaf by leaf."""
    played.step(samples(played.action_space, played.answered, actions))
    return played.frame


def returns() -> list[float]:
    return played.returns


class Lanes:
    """The running environments, the frame that shows them to the program, and their returns so far."""

    def __init__(self, processes: Sequence[ForeignProcess], sources: Sequence[EnvSource]) -> None:
        """Makes an environment from each source, in at least as many lanes as there are processes."""
        self._processes, self._lanes = processes, len(sources)
        shares = np.array_split(range(self._lanes), len(processes))
        self._parts = [slice(int(share[0]), int(share[-1]) + 1) for share in shares]
        for process, part in zip(processes, self._parts, strict=True):
            process.ask(begin, sources[part], part.start)
        try:
            spaces = [process.answer() for process in processes]
        except ValueError as wrong:  # it could be made when the campaign began
            raise Misbehaved(str(wrong)) from wrong
        self._seen, self._answered = spaces[0]
        self.answer_bytes = frame_bytes(self._answered, self._lanes)
        """Size of an answer for all lanes."""
        self._step = 0
        self._frame: list[Column] = []

    @property
    def active(self) -> NDArray[np.bool_]:
        """Whether each lane's episode goes on; shape (lanes,)."""
        return self._frame[0]

    @property
    def returns(self) -> list[float]:
        """Of every lane."""
        for process in self._processes:
            process.ask(returns)
        return [each for process in self._processes for each in process.answer()]

    def describe(self) -> dict[str, object]:
        """What the program needs to read and write frames."""
        return {
            "lanes": self._lanes,
            "observation": [leaf.describe() for leaf in self._seen],
            "action": [leaf.describe() for leaf in self._answered],
        }

    def frame(self) -> bytes:
        """The masks `active` and `episode_start`, and the observations, leaf by leaf."""
        return b"".join(column.tobytes() for column in self._frame)

    def reset(self, seeds: Mapping[int, int]) -> None:
        """Begin an episode in each of these lanes, with its seed."""
        for process in self._processes:
            process.ask(reset, seeds)
        self._gather()

    def step(self, answer: bytes) -> None:
        """Take one answer for all lanes, and step the active ones. Raises Misbehaved: it is invalid."""
        self._step += 1
        actions = columns(self._answered, self._lanes, answer)
        for at, leaf in enumerate(self._answered):
            if wrong := fault(leaf, actions[at], self.active):
                which = f"action '{leaf.path}'" if leaf.path else "the action"
                raise Misbehaved(f"answered {wrong[1]} for {which} in lane {wrong[0]} at step {self._step}")
            actions[at] = accept(leaf, actions[at])
        for process, part in zip(self._processes, self._parts, strict=True):
            process.ask(step, [column[part] for column in actions])
        self._gather()

    def _gather(self) -> None:
        """Take in the frames of all processes."""
        frames = [process.answer() for process in self._processes]
        self._frame = [np.concatenate(parts) for parts in zip(*frames, strict=True)]


@contextmanager
def opened(
    sources: Sequence[EnvSource], cores: int, folder: Path | None, seconds: float, check: Callable[[], None]
) -> Iterator[Lanes]:
    """A lane for each source while the block runs, stepped by as many processes as there are cores.

    Args:
        folder: The environment's, of whose modules its code may be.
        seconds: How long they may take over one step.
        check: Raises where the judgement is to end.
    """
    with ExitStack() as stack:
        shares = range(min(cores, len(sources)))
        yield Lanes([stack.enter_context(ForeignProcess(folder, seconds, check)) for _ in shares], sources)
