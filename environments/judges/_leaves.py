"""Spaces as leaves: observations and actions of many lanes as plain arrays.

A *leaf* is a plain space inside a Dict or Tuple, or the whole space. A *column* is one leaf of all lanes, an array of
shape (lanes, *leaf.shape). Only `leaves` and `samples` need gymnasium.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gymnasium.spaces import Space

Column = NDArray[Any]
"""One leaf of all lanes; its dtype is the leaf's."""
Sample = Any
"""One observation or action of gymnasium, or of all lanes: an array, a number, or dicts and tuples of them."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """One plain space inside an observation or action space."""

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

    Raises ValueError for a space without a fixed size; `role`, observation or action, is for its message.
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
    raise ValueError(
        f"{role} leaf '{path}' is of type {type(space).__name__}, which has no fixed array form: choose "
        "an environment of one agent whose leaves are Box, Discrete, MultiDiscrete or MultiBinary"
    )


def frame_bytes(leaves: Sequence[Leaf], lanes: int) -> int:
    return sum(lanes * int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


def columns(leaves: Sequence[Leaf], lanes: int, frame: bytes) -> list[Column]:
    """Views of `frame`, one column per leaf."""
    views, offset = [], 0
    for leaf in leaves:
        views.append(np.ndarray((lanes, *leaf.shape), leaf.dtype, frame, offset))
        offset += views[-1].nbytes
    return views


def pick(leaf: Leaf, sample: Sample) -> Sample:
    """A sample's part of this leaf."""
    for key in leaf.keys:
        sample = sample[key]
    return sample


def fault(leaf: Leaf, column: Column, active: NDArray[np.bool_]) -> tuple[int, str] | None:
    """The first active lane with an invalid value, and what is wrong with it; None if all are valid."""
    if leaf.choice:
        wrong = (column < leaf.low) | (column > leaf.high)
    elif leaf.dtype.kind == "f":
        wrong = ~np.isfinite(column)
    else:
        return None
    lanes = wrong.reshape(len(active), -1).any(axis=1) & active
    if not lanes.any():
        return None
    lane = int(lanes.argmax())
    value, low, high = (
        np.broadcast_to(each, leaf.shape)[wrong[lane]].flat[0] for each in (column[lane], leaf.low, leaf.high)
    )
    return lane, f"{value}, which is outside {low}..{high}," if leaf.choice else str(value)


def accept(leaf: Leaf, column: Column) -> Column:
    """A copy of a valid column for the environment: with its dtype, a Box clipped to its bounds."""
    if leaf.choice:
        return column.astype(leaf.native)
    if leaf.dtype.kind == "b":
        truths: Column = column.view(np.uint8) != 0  # any byte may arrive, but a bool of value 2 is not a bool
        return truths
    return np.clip(column, leaf.low, leaf.high).astype(leaf.native, copy=False)


def samples(space: Space[Any], leaves: Sequence[Leaf], columns: Sequence[Column]) -> list[Sample]:
    """The sample of each lane, from the columns of all leaves."""
    from gymnasium.vector.utils import batch_space, create_empty_array, iterate

    lanes = len(columns[0])
    together: Sample = create_empty_array(space, lanes)
    for leaf, column in zip(leaves, columns, strict=True):
        pick(leaf, together)[:] = column
    return list(iterate(batch_space(space, lanes), together))
