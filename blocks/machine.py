"""The Prefect Block that divides a machine into slots; one training at a time runs in each.

Saved once; every campaign reads it at its start:

    Machine(gpus=[[0, 1], [2, 3]], cpu_slots=4).save("nightshift", overwrite=True)

Only append fields: their order is part of the schema that saved blocks are checked against.
"""

from __future__ import annotations

from typing import Self

from prefect.blocks.core import Block
from pydantic import Field, model_validator


class Machine(Block):
    """Division of a machine into slots; one training at a time runs in each."""

    _block_type_name = "Nightshift machine"
    _block_type_slug = "nightshift-machine"

    gpus: list[list[int]] = Field(
        default_factory=list,
        description="Groups of GPUs, by nvidia-smi's numbers; one training uses a whole group. Default: groups "
        "of as many as the environment asks for.",
        examples=[[[0, 1], [2, 3]]],
    )
    cpu_slots: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Slots for training without a GPU. Default: the number of usable cores.",
        examples=[4],
    )

    @model_validator(mode="after")
    def _shares_nothing(self) -> Self:
        named = [gpu for group in self.gpus for gpu in group]
        if not all(self.gpus):
            raise ValueError(f"gpus = {self.gpus}: a group is empty: put at least one GPU into each")
        if min(named, default=0) < 0:
            raise ValueError(f"gpus = {self.gpus}: GPUs count from 0, as nvidia-smi shows them")
        if len(set(named)) < len(named):
            raise ValueError(f"gpus = {self.gpus}: a GPU is named twice: each belongs to one group")
        return self
