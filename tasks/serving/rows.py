"""Rows of numbers as observations, and actions as rows: the leaves of a space one after the other, each flattened."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from environments.judges._leaves import Column, Leaf, accept, fault

Rows = NDArray[Any]


def width(leaves: Sequence[Leaf]) -> int:
    """Numbers in a row."""
    return sum(int(np.prod(leaf.shape)) for leaf in leaves)


def dtype(leaves: Sequence[Leaf], wire: bool) -> np.dtype[Any]:
    """The type that holds every leaf's numbers; `wire`: as transmitted, else as in the environment."""
    return np.result_type(*(leaf.dtype.newbyteorder("=") if wire else leaf.native for leaf in leaves))


def observed(leaves: Sequence[Leaf], rows: Rows) -> list[Column]:
    """The columns of rows, of shape (rows, width).

    Raises:
        ValueError: a row has another length, or a number that is no observation.
    """
    wide = width(leaves)
    if rows.ndim != 2 or rows.shape[1] != wide:
        raise ValueError(f"an observation is a row of {wide} numbers, got an array of shape {rows.shape}")
    if not len(rows):
        raise ValueError("there are no rows")
    if rows.dtype.kind not in "fiub":
        raise ValueError(f"an observation is a row of numbers, got {rows.dtype}")
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

    Raises:
        ValueError: an answer is no action.
    """
    for leaf, column in zip(leaves, columns, strict=True):
        if wrong := fault(leaf, column, np.ones(len(column), np.bool_)):
            raise ValueError(f"the program answered {wrong[1].strip(',')} for row {wrong[0]}, which is no action")
    taken = [accept(leaf, column) for leaf, column in zip(leaves, columns, strict=True)]
    if len(leaves) == 1 and not leaves[0].shape:
        return taken[0]
    flat = [column.reshape(len(column), -1) for column in taken]
    return np.concatenate(flat, axis=1, dtype=dtype(leaves, wire=False))
