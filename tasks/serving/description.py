"""champion.json: how a champion's program is run, for a reader without its campaign; and rows as what it sees and does.

It stands in the folder of a model, beside `workspace/` (the program and its config.json) and `out/` (the checkpoint).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from environments.judges._leaves import Column, Leaf, accept, fault
from environments.limits import Limits

FILE = "champion.json"
Rows = NDArray[Any]
"""The leaves of a space one after the other, each flattened."""


class LeafDescription(BaseModel):
    """One leaf of an observation or action space; its fields are those of `Leaf`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str
    dtype: str
    shape: tuple[int, ...]
    native: str
    low: float | list[Any]
    """Bounds, nested as the shape; a number where all are equal."""
    high: float | list[Any]
    choice: bool

    @classmethod
    def of(cls, leaf: Leaf) -> LeafDescription:
        low, high = (flat[0] if (flat := np.unique(bound)).size == 1 else bound for bound in (leaf.low, leaf.high))
        return cls(
            path=leaf.path, dtype=leaf.dtype.str, shape=leaf.shape, native=leaf.native.str, low=low.tolist(),
            high=high.tolist(), choice=leaf.choice,
        )  # fmt: skip

    @property
    def leaf(self) -> Leaf:
        native = np.dtype(self.native)
        low, high = (np.asarray(bound, native) for bound in (self.low, self.high))
        return Leaf(self.path, (), np.dtype(self.dtype), self.shape, native, low, high, self.choice)


class Description(BaseModel):
    """The content of champion.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    environment: str
    metric: str
    judge: Literal["control"] = "control"
    settings: dict[str, Any]
    """The fields of the judge."""
    limits: Limits
    device: str
    python: str = ""
    """As in environment.toml."""
    readable: tuple[str, ...]
    """Absolute paths outside that the program may read."""
    program: str
    """Digest of workspace/, without config.json."""
    checkpoint: str
    """Digest of out/."""
    observation: tuple[LeafDescription, ...] = ()
    """Of a control environment, in the order of transmission."""
    action: tuple[LeafDescription, ...] = ()


def width(leaves: Sequence[Leaf]) -> int:
    """Numbers in a row."""
    return sum(int(np.prod(leaf.shape)) for leaf in leaves)


def dtype(leaves: Sequence[Leaf], wire: bool) -> np.dtype[Any]:
    """The type that holds every leaf's numbers; `wire`: as transmitted, else as in the environment."""
    return np.result_type(*(leaf.dtype.newbyteorder("=") if wire else leaf.native for leaf in leaves))


def observed(leaves: Sequence[Leaf], rows: Rows) -> list[Column]:
    """The columns of rows, of shape (rows, width). ValueError where a row has another length, or is no observation."""
    if rows.ndim != 2 or rows.shape[1] != width(leaves) or not len(rows) or rows.dtype.kind not in "fiub":
        got = f"got {rows.dtype} of shape {rows.shape}"
        raise ValueError(f"an observation is a row of {width(leaves)} numbers, {got}")
    starts = np.cumsum([0, *(int(np.prod(leaf.shape)) for leaf in leaves)])
    found = []
    for leaf, (first, after) in zip(leaves, pairwise(starts), strict=True):
        with np.errstate(all="ignore"):
            column = rows[:, first:after].reshape(len(rows), *leaf.shape).astype(leaf.dtype)
        if wrong := fault(leaf, column, np.ones(len(column), np.bool_)):
            raise ValueError(f"the observation {leaf.path!r} of row {wrong[0]} holds {wrong[1].strip(',')}")
        found.append(column)
    return found


def acted(leaves: Sequence[Leaf], columns: Sequence[Column]) -> Rows:
    """The actions of answered columns, clipped to their bounds: one number a row, or rows of shape (rows, width).
    ValueError where an answer is no action.
    """
    for leaf, column in zip(leaves, columns, strict=True):
        if wrong := fault(leaf, column, np.ones(len(column), np.bool_)):
            raise ValueError(f"the program answered {wrong[1].strip(',')} for row {wrong[0]}, which is no action")
    taken = [accept(leaf, column) for leaf, column in zip(leaves, columns, strict=True)]
    if len(leaves) == 1 and not leaves[0].shape:
        return taken[0]
    flat = [column.reshape(len(column), -1) for column in taken]
    return np.concatenate(flat, axis=1, dtype=dtype(leaves, wire=False))
