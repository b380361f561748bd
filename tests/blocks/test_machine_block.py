"""The saved block that says how a machine is divided: what it refuses, and that its schema stays."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from blocks.machine import Machine


def test_the_block_describes_every_field_and_their_order_stays() -> None:
    assert Machine.get_block_type_slug() == "nightshift-machine"
    assert all((field.description or "").endswith(".") for field in Machine.model_fields.values())
    assert list(Machine.model_fields) == ["gpus", "cpu_slots"]


def test_a_block_that_says_nothing_leaves_everything_as_it_is_found() -> None:
    assert (Machine().gpus, Machine().cpu_slots) == ([], None)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"gpus": [[0], []]}, r"gpus = \[\[0\], \[\]\]: a group is empty: put at least one GPU into each"),
        ({"gpus": [[0, -1]]}, r"gpus = \[\[0, -1\]\]: GPUs count from 0"),
        ({"gpus": [[0, 1], [1]]}, r"gpus = \[\[0, 1\], \[1\]\]: a GPU is named twice: each belongs to one group"),
        ({"cpu_slots": 0}, "greater than or equal to 1"),
    ],
)
def test_a_machine_that_cannot_be_divided_like_that_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Machine(**values)
