"""Spaces as leaves: observations and actions of many lanes as plain arrays.

A *tree* mirrors a space: a dict for Dict (in sorted key order), a tuple for Tuple, a `Leaf` for everything else. A
*column* is one leaf of all lanes, an array of shape (lanes, *leaf.shape). All functions are pure; only `tree` needs
gymnasium.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]
"""One leaf of all lanes; its dtype is the leaf's."""
Sample = Any
"""One observation or action of gymnasium: an array, a number, or dicts and tuples of them."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """One plain space inside an observation or action space."""

    path: str
    """Keys and indices joined by "/"; empty when the whole space is this leaf."""
    keys: tuple[Hashable, ...]
    """The same as subscripts into a sample."""
    dtype: np.dtype[Any]
    """On the wire: little-endian."""
    shape: tuple[int, ...]
    native: np.dtype[Any]
    """In the environment."""
    low: Column
    high: Column
    """Bounds, both inclusive, broadcastable to `shape`."""
    choice: bool
    """A value outside the bounds is invalid (Discrete and its kin); in a Box it is clipped."""
    scalar: bool
    """A sample is a number, not an array (Discrete)."""

    def describe(self) -> dict[str, object]:
        """The leaf as the program is told of it."""
        return {"path": self.path, "dtype": self.dtype.str, "shape": list(self.shape)}


Tree = Leaf | dict[Hashable, "Tree"] | tuple["Tree", ...]


def tree(space: object, role: str, keys: tuple[Hashable, ...] = ()) -> Tree:
    """The tree of a gymnasium space; `role` ("observation" or "action") is for messages.

    Raises:
        ValueError: a space without a fixed size, or two leaves with the same path.
    """
    grown = _grow(space, role, keys)
    paths = [leaf.path for leaf in leaves(grown)]
    for path in paths:
        if paths.count(path) > 1:
            raise ValueError(f"{role} leaf '{path}' exists twice: rename a key that spells this path")
    return grown


def _grow(space: object, role: str, keys: tuple[Hashable, ...]) -> Tree:
    from gymnasium import spaces

    path = "/".join(map(str, keys))
    if isinstance(space, spaces.Dict):
        return {key: _grow(space.spaces[key], role, (*keys, key)) for key in sorted(space.spaces, key=str)}
    if isinstance(space, spaces.Tuple):
        return tuple(_grow(part, role, (*keys, index)) for index, part in enumerate(space.spaces))
    if isinstance(space, spaces.Box):
        wire = space.dtype.newbyteorder("<")
        return Leaf(path, keys, wire, space.shape, space.dtype, space.low, space.high, False, False)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        discrete = isinstance(space, spaces.Discrete)
        low = np.asarray(space.start, np.int64)
        high = low + np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec, np.int64) - 1
        return Leaf(path, keys, np.dtype("<i8"), low.shape, np.dtype(space.dtype), low, high, True, discrete)
    if isinstance(space, spaces.MultiBinary):
        low, high = np.zeros((), np.int8), np.ones((), np.int8)
        return Leaf(path, keys, np.dtype("|i1"), space.shape, np.dtype(space.dtype), low, high, True, False)
    raise ValueError(
        f"{role} leaf '{path}' is of type {type(space).__name__}, which has no fixed array form: choose "
        "an environment of one agent whose leaves are Box, Discrete, MultiDiscrete or MultiBinary"
    )


def leaves(tree: Tree) -> list[Leaf]:
    """The leaves in the order of transmission."""
    if isinstance(tree, Leaf):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in leaves(part)]


def frame_bytes(leaves: Sequence[Leaf], lanes: int) -> int:
    """Size of the columns of all lanes, in bytes."""
    return sum(lanes * int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


def columns(leaves: Sequence[Leaf], lanes: int, frame: bytes | bytearray, offset: int = 0) -> list[Column]:
    """Views of `frame`, one column per leaf, the first at `offset`; writable if the frame is."""
    views = []
    for leaf in leaves:
        views.append(np.ndarray((lanes, *leaf.shape), leaf.dtype, frame, offset))
        offset += views[-1].nbytes
    return views


def pick(leaf: Leaf, sample: Sample) -> Sample:
    """The leaf's part of one sample."""
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
        np.extract(wrong[lane], np.broadcast_to(each, leaf.shape))[0] for each in (column[lane], leaf.low, leaf.high)
    )
    if leaf.choice:
        return lane, f"{value}, which is outside {low}..{high},"
    return lane, "NaN" if np.isnan(value) else f"{value}"


def accept(leaf: Leaf, column: Column) -> Column:
    """A copy of a valid column for the environment: with its dtype, a Box clipped to its bounds."""
    if leaf.choice:
        return column.astype(leaf.native)
    if leaf.dtype.kind == "b":
        truths: Column = column.view(np.uint8) != 0  # any byte may arrive, but a bool of value 2 is not a bool
        return truths
    return np.clip(column, leaf.low, leaf.high).astype(leaf.native, copy=False)


def samples(tree: Tree, columns: Iterator[Column], lanes: int) -> list[Sample]:
    """Every lane's sample, rebuilt from the columns of all leaves in order."""
    if isinstance(tree, Leaf):
        column = next(columns)
        return list(column) if tree.scalar else [column[lane, ...] for lane in range(lanes)]
    parts = tree.values() if isinstance(tree, dict) else tree
    by_part = [samples(part, columns, lanes) for part in parts]
    by_lane = [tuple(part[lane] for part in by_part) for lane in range(lanes)]
    return [dict(zip(tree, sample, strict=True)) for sample in by_lane] if isinstance(tree, dict) else by_lane
