"""The reported judge: the score is what the endpoint of a remote training reports. Nothing is measured here.

The endpoint leaves `result.json` in the trial's out/, in the form of the command judge's results. The metric's name has
to begin with `reported/`, which is shown wherever the score is, and no certificate is made of such scores.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from environments.judges import BlockUnits
from environments.judges.command import Command

RESULT = "result.json"


class Reported(Command):
    """Takes the result that the endpoint has left."""

    block_units: ClassVar[BlockUnits] = "same"

    eval_cmd: Literal["cp {out}/result.json {result}"] = Field(
        default="cp {out}/result.json {result}", description="It is always the same."
    )
