"""champion.json: how a champion's program is run, for a reader without its campaign.

It stands in the folder of a model, beside `workspace/` (the program and its config.json) and `out/` (the checkpoint).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from environments.judges._leaves import Leaf
from environments.limits import Limits

FILE = "champion.json"


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
        low, high = (_short(bound) for bound in (leaf.low, leaf.high))
        return cls(
            path=leaf.path, dtype=leaf.dtype.str, shape=leaf.shape, native=leaf.native.str, low=low, high=high,
            choice=leaf.choice,
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


def _short(bound: Any) -> float | list[Any]:
    flat = np.unique(bound)
    found: float | list[Any] = flat[0].item() if flat.size == 1 else np.asarray(bound).tolist()
    return found
