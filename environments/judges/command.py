"""The command judge: the result file of a frozen evaluation command is the score.

The command runs in the frozen copy of the environment, reads the training's output in `{out}`, and writes one JSON
object to `{result}`: `{"score": 0.71}`, or `{"units": [1, 0, 1, 1]}` with one number per question or episode, which
also gives a standard error, or `{"sources": {"gsm": [1, 0], "svamp": [1, 1, 1]}}` with units from several sources,
whose means are averaged. `"also": {"tokens": 312.5}` may name metrics to be shown beside the score and guarded. Other
keys are ignored, and so is what it prints.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from environments import safe_open
from environments.judges import BlockUnits, Candidate, Exam, Judge, Misbehaved
from environments.safe_open import NotPlain
from environments.score import LARGEST, METRIC, Score

RESULT_BYTES = 8 * 2**20
"""Largest result file in bytes: about 400,000 units."""
MOST_NAMES = 50
"""Most sources of a result, and metrics beside its score."""
LONGEST_NAME = 100
_FORMS = ("score", "units", "sources")
_REMEDY = (
    'the evaluation command must leave {"score": number}, {"units": [number, ...]} or '
    '{"sources": {"name": [number, ...], ...}} there'
)
_ALSO = 'figures beside the score are {"also": {"name": number, ...}}'
_NAMING = f"a name has up to {LONGEST_NAME} letters, digits, _ - . space : / @"


class Command(Judge):
    """Runs `eval_cmd` and reads its result file."""

    runs_in: ClassVar[Literal["workspace", "environment"]] = "environment"

    eval_cmd: str = Field(
        description="Command line of the evaluation. {out}: what training left; {result}: the JSON file to "
        "write; {seed}: the seed of its draws; {block}: its share of a finite pool, 2/5 or 1/1."
    )
    total_seconds: float = Field(
        default=600, gt=0, allow_inf_nan=False, description="How long the evaluation may take."
    )
    weights: dict[Annotated[str, Field(pattern=METRIC)], Annotated[float, Field(gt=0, le=1e6)]] = Field(
        default={}, description="How much the mean of each source counts, by its name; absent: all alike."
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

    @property
    def block_units(self) -> BlockUnits:
        return "disjoint" if "{block}" in self.eval_cmd else "fresh" if "{seed}" in self.eval_cmd else "same"

    def command(self) -> str:
        return self.eval_cmd

    def check(self, folder: Path) -> None:
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

    def score(self, candidate: Candidate, exam: Exam) -> Score:
        """The mean of the units or sources that the command wrote; its command line holds the seed."""
        status = candidate.wait(self.total_seconds)
        if status != 0:
            raise Misbehaved(f"the evaluation command exited with status {status}")
        result = _read(candidate.result)
        score = self._scored(candidate.result, result, exam.higher_is_better)
        also = _also(candidate.result, result)
        if twice := sorted(also.keys() & score.also.keys()):
            raise Misbehaved(
                f"the result {candidate.result} has also.{twice[0]}, which its sources give: leave it out of also"
            )
        return replace(score, also=score.also | also)

    def _scored(self, path: Path, result: dict[str, object], higher_is_better: bool) -> Score:
        given = [form for form in _FORMS if form in result]
        if len(given) != 1:
            which = " and ".join(map(repr, given[:2])) if given else " nor ".join(map(repr, _FORMS))
            raise Misbehaved(f"the result {path} has {'both' if given else 'neither'} {which}: {_REMEDY}")
        sources = _named(path, "sources", result["sources"], _REMEDY) if "sources" in result else {}
        if self.weights and self.weights.keys() != sources.keys():
            raise Misbehaved(
                f"the result {path} has sources {_listed(sources)}, the weights in [command] are for "
                f"{_listed(self.weights)}: give a weight to every source and to nothing else"
            )
        if sources:
            units = {name: _numbers(path, f"sources.{name}", some) for name, some in sources.items()}
            return Score.of_sources(units, self.weights or dict.fromkeys(units, 1.0), higher_is_better)
        if "units" in result:
            return Score.of(_numbers(path, "units", result["units"]), higher_is_better)
        return Score.of([_number(path, "score", result["score"], _REMEDY)], higher_is_better)


def _read(path: Path) -> dict[str, object]:
    """The JSON object in a result file, which may be anything.

    Raises:
        Misbehaved: it is missing, too large, not a regular file, or not a JSON object.
    """
    try:
        with safe_open.open_file(path) as file:
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


def _also(path: Path, result: dict[str, object]) -> dict[str, float]:
    also = result.get("also", {})
    if also == {}:
        return {}
    named = _named(path, "also", also, _ALSO)
    return {name: _number(path, f"also.{name}", value, _ALSO) for name, value in named.items()}


def _named(path: Path, key: str, value: object, remedy: str) -> dict[str, object]:
    """The value as an object whose keys are metric names."""
    if not isinstance(value, dict) or not value:
        raise Misbehaved(f"the result {path} has {key} = {_shorten(value)}, not an object with entries: {remedy}")
    if len(value) > MOST_NAMES:
        raise Misbehaved(f"the result {path} has {len(value)} entries in {key}: write {MOST_NAMES} at most")
    for name in value:
        if len(name) > LONGEST_NAME or not re.fullmatch(METRIC, name):
            raise Misbehaved(f"the result {path} has the name {_shorten(name)} in {key}: {_NAMING}")
    return value


def _numbers(path: Path, key: str, units: object) -> list[float]:
    if not isinstance(units, list) or not units:
        raise Misbehaved(f"the result {path} has {key} = {_shorten(units)}, not a list of numbers: {_REMEDY}")
    return [_number(path, f"{key}[{index}]", unit, _REMEDY) for index, unit in enumerate(units)]


def _number(path: Path, name: str, value: object, remedy: str) -> float:
    """The value as a finite float; Python's JSON parser accepts NaN, Infinity and integers of any size."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if abs(number) <= LARGEST:  # comparisons with NaN are false
            return number
    raise Misbehaved(f"the result {path} has {name} = {_shorten(value)}, not a finite number up to {LARGEST}: {remedy}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _shorten(value: object) -> str:
    if isinstance(value, dict | list) and value:
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
