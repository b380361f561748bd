"""Lanes: the environments of one judgement by the control judge, in a process of their own (see `_process`)."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from environments.judges import Misbehaved
from environments.score import LARGEST

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]  # its observations are known only to its space

Column = NDArray[Any]
"""One leaf of all lanes; its dtype is the leaf's."""
Sample = Any
"""One observation or action of gymnasium, or of all lanes: an array, a number, or dicts and tuples of them."""

Spaces = tuple[list["Leaf"], list["Leaf"]]
"""The leaves of observations and of actions."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """One plain space inside a Dict or Tuple, or the whole space."""

    path: str
    """Its subscripts in a sample, `keys`, joined by "/"; empty when the whole space is this leaf."""
    keys: tuple[Hashable, ...]
    dtype: np.dtype[Any]
    """On the wire: little-endian. In the environment it is `native`."""
    shape: tuple[int, ...]
    native: np.dtype[Any]
    low: Column
    high: Column
    """Bounds, both inclusive, broadcastable to `shape`."""
    choice: bool
    """A value outside the bounds is invalid (Discrete and its kin); in a Box it is clipped."""

    def describe(self) -> dict[str, object]:
        """The leaf as the program is told of it."""
        return {"path": self.path, "dtype": self.dtype.str, "shape": list(self.shape)}


def leaves(space: object, role: str, keys: tuple[Hashable, ...] = ()) -> list[Leaf]:
    """The leaves of a gymnasium space in the order of transmission, in a Dict that of its keys.

    Raises Misbehaved for a space without a fixed size; `role`, observation or action, is for its message.
    """
    from gymnasium import spaces

    path = "/".join(map(str, keys))
    if isinstance(space, spaces.Dict):
        names = sorted(space.spaces, key=str)
        return [leaf for key in names for leaf in leaves(space.spaces[key], role, (*keys, key))]
    if isinstance(space, spaces.Tuple):
        return [leaf for at, part in enumerate(space.spaces) for leaf in leaves(part, role, (*keys, at))]
    if isinstance(space, spaces.Box):
        wire = space.dtype.newbyteorder("<")
        return [Leaf(path, keys, wire, space.shape, space.dtype, space.low, space.high, False)]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        low = np.asarray(space.start, np.int64)
        high = low + np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec, np.int64) - 1
        return [Leaf(path, keys, np.dtype("<i8"), low.shape, np.dtype(space.dtype), low, high, True)]
    if isinstance(space, spaces.MultiBinary):
        low, high = np.zeros((), np.int8), np.ones((), np.int8)
        return [Leaf(path, keys, np.dtype("|i1"), space.shape, np.dtype(space.dtype), low, high, True)]
    raise Misbehaved(
        f"{role} leaf '{path}' is of type {type(space).__name__}, which has no fixed array form: choose "
        "an environment of one agent whose leaves are Box, Discrete, MultiDiscrete or MultiBinary"
    )


def frame_bytes(leaves: Sequence[Leaf], lanes: int) -> int:
    return sum(lanes * int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


def pick(leaf: Leaf, sample: Sample) -> Sample:
    """A sample's part of this leaf."""
    for key in leaf.keys:
        sample = sample[key]
    return sample


def read_actions(leaves: Sequence[Leaf], answer: bytes, active: NDArray[np.bool_]) -> list[Column]:
    """The columns of an answer for all lanes, as the environment takes them: with its dtypes, a Box clipped.

    Raises Misbehaved: an active lane has an invalid value.
    """
    taken, offset = [], 0
    for leaf in leaves:
        column: Column = np.ndarray((len(active), *leaf.shape), leaf.dtype, answer, offset)
        offset += column.nbytes
        wrong = (column < leaf.low) | (column > leaf.high) if leaf.choice else ~np.isfinite(column)
        if (lanes := wrong.reshape(len(active), -1).any(axis=1) & active).any():
            lane, which = int(lanes.argmax()), f"action '{leaf.path}'" if leaf.path else "the action"
            value, low, high = (
                np.broadcast_to(each, leaf.shape)[wrong[lane]].flat[0] for each in (column[lane], leaf.low, leaf.high)
            )
            bounds = f", which is outside {low}..{high}," if leaf.choice else ""
            raise Misbehaved(f"answered {value}{bounds} for {which} in lane {lane}")
        if leaf.dtype.kind == "b":
            column = column.view(np.uint8) != 0  # any byte may arrive, but a bool of value 2 is not a bool
        elif not leaf.choice:
            column = np.clip(column, leaf.low, leaf.high)
        taken.append(column.astype(leaf.native))
    return taken


@dataclass(frozen=True)
class EnvSource:
    """What an environment is made from."""

    env_id: str
    max_episode_steps: int | None
    kwargs: dict[str, Any]
    packages: tuple[str, ...] = ()
    """Folders in which modules are looked for after all others."""

    def make(self) -> Env:
        """Raises Misbehaved: there is none of that name, or it cannot be made; gymnasium says the remedy."""
        import gymnasium

        sys.path += [folder for folder in self.packages if folder not in sys.path]
        try:
            return gymnasium.make(self.env_id, self.max_episode_steps, disable_env_checker=True, **self.kwargs)
        except (Exception, SystemExit) as error:  # whatever a foreign environment raises
            made = f"{self.env_id} cannot be made with kwargs {self.kwargs}"
            raise Misbehaved(f"{made} ({type(error).__name__}: {error})") from error


class Lanes:
    """Environments of one kind, side by side, in their process; each plays one episode."""

    def __init__(self, sources: Sequence[EnvSource]) -> None:
        self.envs = [source.make() for source in sources]
        self.spaces = self.envs[0].observation_space, self.envs[0].action_space
        self._seen, self._answered = leaves(self.spaces[0], "observation"), leaves(self.spaces[1], "action")
        self._active, self._start = np.zeros((2, len(sources)), np.bool_)
        self._shown = [np.zeros((len(sources), *leaf.shape), leaf.dtype) for leaf in self._seen]
        self._steps = 0
        self._returns = [0.0] * len(sources)

    def leaves(self) -> Spaces:
        return self._seen, self._answered

    def returns(self) -> list[float]:
        return self._returns

    def _frame(self) -> bytes:
        """The masks `active` and `episode_start`, and the observations, leaf by leaf; nothing once all is over."""
        columns = (self._active, self._start, *self._shown)
        return b"".join(column.tobytes() for column in columns) if self._active.any() else b""

    def reset(self, seeds: Mapping[int, int]) -> bytes:
        """Begin an episode in each of these lanes, with its seed; the frame."""
        for lane, seed in seeds.items():
            try:
                self._show(lane, self.envs[lane].reset(seed=seed)[0])
            except (Exception, SystemExit) as error:  # whatever a foreign environment raises
                raise _failed(f"at its reset in lane {lane}", error) from error
            self._active[lane] = self._start[lane] = True
        return self._frame()

    def step(self, answer: bytes) -> bytes:
        """Take one answer for all lanes, and step the active ones; the frame. Raises Misbehaved: it is invalid."""
        from gymnasium.vector.utils import batch_space, create_empty_array, iterate

        self._steps += 1
        try:
            actions = read_actions(self._answered, answer, self._active)
        except Misbehaved as wrong:
            raise Misbehaved(f"{wrong} at step {self._steps}") from wrong
        self._start[:] = False
        together: Sample = create_empty_array(self.spaces[1], len(self.envs))
        for leaf, column in zip(self._answered, actions, strict=True):
            pick(leaf, together)[:] = column
        each = list(iterate(batch_space(self.spaces[1], len(self.envs)), together))
        for lane in self._active.nonzero()[0].tolist():
            where = f"in lane {lane} at step {self._steps}"
            try:
                after, reward, terminated, truncated, _ = self.envs[lane].step(each[lane])
                gain = float(reward.item() if isinstance(reward, np.ndarray) else reward)
                self._active[lane] = not (terminated or truncated)
                if self._active[lane]:
                    self._show(lane, after)
                else:
                    for column in self._shown:
                        column[lane] = 0
            except (Exception, SystemExit) as error:
                raise _failed(where, error) from error
            if not abs(gain) <= LARGEST:  # comparisons with NaN are false
                raise Misbehaved(f"the environment returned reward {gain} {where}")
            self._returns[lane] += gain
        return self._frame()

    def _show(self, lane: int, observation: Sample) -> None:
        for leaf, column in zip(self._seen, self._shown, strict=True):
            column[lane] = pick(leaf, observation)


def _failed(where: str, error: BaseException) -> Misbehaved:
    return Misbehaved(f"the environment failed {where}: {type(error).__name__}: {error}")


def examine(sources: Sequence[EnvSource]) -> Spaces:
    """The spaces that environments share, after one reset and one step of each.

    Raises Misbehaved: they cannot be judged, or no one policy can play all.
    """
    lanes = Lanes(sources)
    for source, env in zip(sources, lanes.envs, strict=True):
        if env.spec is None or env.spec.max_episode_steps is None:
            raise Misbehaved(
                f"{source.env_id} has no time limit, so an episode may never end: set max_episode_steps in [control]"
            )
        if (spaces := (env.observation_space, env.action_space)) != lanes.spaces:
            raise Misbehaved(
                f"kwargs {sources[0].kwargs} and {source.kwargs} make different spaces, {lanes.spaces} and {spaces}: "
                "one policy must be able to play both, so correct them"
            )
    lanes.spaces[1].seed(0)
    sample = lanes.spaces[1].sample()
    each = [np.asarray([pick(leaf, sample)] * len(sources), leaf.dtype) for leaf in lanes.leaves()[1]]
    try:
        lanes.reset(dict.fromkeys(range(len(sources)), 0))
        lanes.step(b"".join(column.tobytes() for column in each))
    except Misbehaved as wrong:
        raise Misbehaved(f"{sources[0].env_id} with kwargs {[source.kwargs for source in sources]}: {wrong}") from wrong
    return lanes.leaves()
