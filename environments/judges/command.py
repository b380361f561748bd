"""The command judge: the result file of a frozen evaluation command is the score.

The file holds `{"score": 0.71}`, or `{"units": [1, 0, 1, 1]}` with one number per question or episode, which also gives
a standard error, or `{"sources": {"gsm": [1, 0], "svamp": [1, 1, 1]}}`, whose means are averaged. `"also": {"tokens":
312.5}` may name metrics to be shown beside the score and guarded.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from environments import plugins, safe_open
from environments.judges import BlockUnits, Candidate, Exam, Judge, Misbehaved
from environments.score import LARGEST, METRIC, Score

RESULT_BYTES = 8 * 2**20
"""Largest result file in bytes: about 400,000 units."""
MOST_NAMES = 50
"""Most sources of a result, and metrics beside its score."""
_REMEDY = (
    'the evaluation command must leave {"score": number}, {"units": [number, ...]} or '
    '{"sources": {"name": [number, ...], ...}} there'
)
Name = Annotated[str, Field(pattern=METRIC, max_length=100)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Numbers = Annotated[list[Number], Field(min_length=1)]


class Result(BaseModel, strict=True, allow_inf_nan=False):
    """A result file; other keys are ignored, and so is what the command prints."""

    score: Number | None = None
    units: Numbers | None = None
    sources: Annotated[dict[Name, Numbers], Field(min_length=1, max_length=MOST_NAMES)] | None = None
    also: Any = None

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Result:
        if sum(given is not None for given in (self.score, self.units, self.sources)) != 1:
            raise ValueError("must have one of 'score', 'units' and 'sources', and no more")
        return self

    @property
    def beside(self) -> dict[str, float]:
        """The first metrics of `also` that are numbers: what stands beside a score costs none."""
        named = list(self.also.items())[:MOST_NAMES] if isinstance(self.also, dict) else ()
        return {
            name: float(value)
            for name, value in named
            if re.fullmatch(METRIC, name) and isinstance(value, float | int) and abs(value) <= LARGEST
        }


class Command(Judge):
    """Runs `eval_cmd` and reads its result file."""

    eval_cmd: str = Field(
        description="Command line of the evaluation. {out}: what training left; {result}: the JSON file to "
        "write; {seed}: the seed of its draws; {block}: its share of a finite pool, 2/5 or 1/1."
    )
    weights: dict[Annotated[str, Field(pattern=METRIC)], Annotated[float, Field(gt=0, le=1e6)]] = Field(
        default={}, description="How much the mean of each source counts, by its name; absent: all alike."
    )
    readable: tuple[str, ...] = Field(
        default=(), description="Paths that the evaluation reads besides the environment's folder and {out}."
    )
    network: bool = Field(default=False, description="Whether the evaluation may use the network.")

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.readable

    @property
    def online(self) -> bool:  # type: ignore[override]
        return self.network

    @property
    def block_units(self) -> BlockUnits:  # type: ignore[override]
        return "disjoint" if "{block}" in self.eval_cmd else "fresh" if "{seed}" in self.eval_cmd else "same"

    def command(self) -> str:
        return self.eval_cmd

    def check(self, folder: Path) -> None:
        if "{result}" not in self.eval_cmd:
            raise ValueError(
                f"eval_cmd never mentions {{result}}, got {self.eval_cmd!r}: pass it to the command as "
                'the file to write {"score": number} to'
            )

    def score(self, candidate: Candidate, exam: Exam) -> Score:
        if (status := candidate.wait()) != 0:
            raise Misbehaved(f"the evaluation command exited with status {status}")
        result = _read(candidate.result)
        if not result.sources and not self.weights:
            return replace(Score.of(result.units or [result.score or 0.0]), also=result.beside)
        sources = result.sources or {}
        try:
            score = Score.of_sources(sources, self.weights or dict.fromkeys(sources, 1.0))
        except ValueError as wrong:
            raise Misbehaved(f"the result {candidate.result}: {wrong}: correct [command.weights]") from wrong
        return replace(score, also=result.beside | score.also)


def _read(path: Path) -> Result:
    """The result in a file, which may be anything. Raises Misbehaved: it is none."""
    try:
        with safe_open.open_file(path) as file:
            text = file.read(RESULT_BYTES + 1)
    except OSError as error:
        raise Misbehaved(f"the result {path} cannot be read ({error.strerror}): {_REMEDY}") from error
    if len(text) > RESULT_BYTES:
        raise Misbehaved(f"the result {path} is larger than {RESULT_BYTES} bytes: write fewer units")
    try:
        return Result.model_validate_json(text)
    except ValidationError as error:
        first, *_ = str(plugins.explain(error, f"the result {path}")).splitlines()  # each unit may have the same fault
        raise Misbehaved(f"{first}: {_REMEDY}") from error
