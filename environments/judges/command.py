"""The command judge: a frozen evaluation command, whose result file is the score.

The command runs in the frozen copy of the environment, reads what training left in `{out}`, and writes one
JSON object to `{result}`: `{"score": 0.71}`, or `{"units": [1, 0, 1, 1]}` with one number per question or
episode, which also tells how certain the mean is. Further keys are allowed and not read; what it prints is no
score.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from environments import plainly
from environments.judges import Candidate, Judge, Misbehaved
from environments.plainly import NotPlain
from environments.score import Score

RESULT_BYTES = 8 * 2**20
"""The largest result file that is read: about 400,000 units."""
LARGEST = 1e100
"""Numbers beyond it are refused like NaN: no standard error can hold their squares."""
_REMEDY = 'the evaluation command must leave {"score": number} or {"units": [number, ...]} there'


class Command(Judge):
    """Runs `eval_cmd` and believes its result file."""

    runs_in: ClassVar[Literal["workspace", "environment"]] = "environment"

    eval_cmd: str = Field(
        description="Command line of the evaluation. {out}: what training left; {result}: the JSON file to "
        "write; {seed}: the seed of its draws."
    )
    total_seconds: float = Field(
        default=600, gt=0, allow_inf_nan=False, description="How long the evaluation may take."
    )

    readable: tuple[str, ...] = Field(
        default=(), description="Paths that the evaluation reads besides the environment's folder and {out}."
    )
    network: bool = Field(default=False, description="Whether the evaluation may use the network.")

    @property
    def reads(self) -> tuple[str, ...]:
        return self.readable

    @property
    def online(self) -> bool:
        return self.network

    def command(self) -> str:
        return self.eval_cmd

    def check(self) -> None:
        if not self.eval_cmd.strip():
            raise ValueError(
                "eval_cmd is empty: give the command that evaluates {out} and writes {result}, "
                'such as "python evaluate.py {out} {result}"'
            )
        if "{result}" not in self.eval_cmd:
            raise ValueError(
                f"eval_cmd never mentions {{result}}, got {self.eval_cmd!r}: pass it to the command as "
                'the file to write {"score": number} to'
            )

    def score(self, candidate: Candidate, seed: int, higher_is_better: bool) -> Score:
        """The mean of the units that the command wrote; `seed` reaches it through its command line."""
        status = candidate.wait(self.total_seconds)
        if status != 0:
            raise Misbehaved(f"the evaluation command exited with status {status}")
        return Score.of(_units(candidate.result, _read(candidate.result)), higher_is_better)


def _read(path: Path) -> dict[str, object]:
    """The JSON object in a result file, which the command may have made into anything.

    Raises:
        Misbehaved: it is missing, too large, not a plain file, or not a JSON object.
    """
    try:
        with plainly.open_file(path) as file:
            text = file.read(RESULT_BYTES + 1)
    except NotPlain as error:
        raise Misbehaved(f"the result {path} is not a plain file: {_REMEDY}") from error
    except OSError as error:
        raise Misbehaved(f"the result {path} cannot be read ({error.strerror}): {_REMEDY}") from error
    if len(text) > RESULT_BYTES:
        raise Misbehaved(f"the result {path} is larger than {RESULT_BYTES} bytes: write fewer units")
    try:
        result: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misbehaved(f"the result {path} is not JSON ({error}): {_REMEDY}") from error
    if not isinstance(result, dict):
        raise Misbehaved(f"the result {path} holds {_shorten(result)}, not an object: {_REMEDY}")
    return result


def _units(path: Path, result: dict[str, object]) -> list[float]:
    if ("score" in result) == ("units" in result):
        both = "both 'score' and 'units'" if "score" in result else "neither 'score' nor 'units'"
        raise Misbehaved(f"the result {path} has {both}: {_REMEDY}")
    if "score" in result:
        return [_number(path, "score", result["score"])]
    units = result["units"]
    if not isinstance(units, list) or not units:
        raise Misbehaved(f"the result {path} has units = {_shorten(units)}, not a list of numbers: {_REMEDY}")
    return [_number(path, f"units[{index}]", unit) for index, unit in enumerate(units)]


def _number(path: Path, name: str, value: object) -> float:
    """The value as a finite float; what Python reads as JSON includes NaN, Infinity and huge integers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if abs(number) <= LARGEST:  # NaN compares as false
            return number
    raise Misbehaved(
        f"the result {path} has {name} = {_shorten(value)}, not a finite number up to {LARGEST}: {_REMEDY}"
    )


def _shorten(value: object) -> str:
    if isinstance(value, dict | list) and value:
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
