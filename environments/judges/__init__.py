"""Judges: the frozen measure of an environment, and the only source of a score.

A judge never starts a program. It names the command, and `tasks.evaluate` hands it the started *candidate*, which it
can only talk to. Each is a file in this folder with one public subclass of `Judge`, whose fields are its settings: the
section of environment.toml with the file's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from pydantic import BaseModel, Field, FiniteFloat

from environments.score import Score, Wait

Use = Literal["search", "confirm", "report"]
"""Purpose of a judgement. Units of different purposes are disjoint."""
BlockUnits = Literal["fresh", "disjoint", "same"]
"""Units of each block of a comparison: drawn anew from its seed, a share of a finite pool, or the same for all."""


@dataclass(frozen=True)
class ComparisonBlock:
    """Runs of a comparison that are judged on the same units, counted from 1. Those of a finite pool share it out."""

    number: int
    of: int


@dataclass(frozen=True)
class Exam:
    """One judgement: its purpose and its draws."""

    seed: int
    use: Use = "search"
    prepared: Path | None = None
    """The prepared files of the environment's recipe (`environments.recipe`); None without one."""
    folder: Path | None = None
    """The frozen environment's folder, for a judge that reads files of it."""
    need: Wait | None = None
    """What the baseline needed of a judge that runs the program's code; None: it waits as its own settings say."""
    block: ComparisonBlock | None = None
    """The share of a finite pool to draw from; None: all of it."""
    check: Callable[[], None] = field(default=lambda: None)
    """Raises where the judgement is to end, for a judge that waits for something else."""


class Misbehaved(Exception):
    """The candidate answered wrongly, late or not at all; the message is the reason shown to the user."""


class Candidate(Protocol):
    """A started program under judgement, connected by pipes. Its methods raise Misbehaved when it ends or is late, for
    this answer or for the whole evaluation.
    """

    result: Path
    """Result file of an evaluation command; absent until it is written."""

    def send(self, data: bytes, seconds: float) -> None:
        """Write all of `data` to the program's standard input within `seconds`."""

    def receive(self, size: int, seconds: float) -> bytes:
        """Read exactly `size` bytes from its standard output within `seconds`."""

    def receive_line(self, limit: int, seconds: float) -> bytes:
        """Read one line (without its newline, at most `limit` bytes) within `seconds`."""

    def wait(self) -> int:
        """Wait for the program to end; returns its exit status."""


class Judge(BaseModel, ABC, frozen=True, extra="forbid"):
    """The measure of an environment: frozen, and blind to everything but the candidate's answers."""

    runs_in: ClassVar[Literal["workspace", "environment"]] = "environment"
    """Where the candidate starts: the trial's workspace, or the frozen copy of the environment."""
    shows_prepared: ClassVar[bool] = True
    """Whether a command that runs in the environment sees the judge's prepared files; if not, the judge needs some."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Paths that its command reads besides its working directory; relative ones are in the environment's folder."""
    imports: ClassVar[tuple[str, ...]] = ()
    """Modules that its command needs of the Python that runs programs."""
    online: ClassVar[bool] = False
    """Whether its command may use the network."""
    block_units: ClassVar[BlockUnits] = "same"
    """The units of each block of a comparison. With the same ones it is about these units and no others."""

    total_seconds: FiniteFloat = Field(default=600, gt=0, description="How long the whole evaluation may take.")

    @abstractmethod
    def command(self) -> str:
        """The candidate's command line. The engine fills in `{out}`, `{result}`, `{seed}` and `{block}`."""

    @abstractmethod
    def check(self, folder: Path) -> None:
        """Raise ValueError or Misbehaved for a problem that cannot be judged. `folder`: the environment's."""

    def measures(self) -> tuple[str, ...] | None:
        """Metrics that it can measure besides the score; None if only a result tells."""
        return None

    def problem(self) -> dict[str, object]:
        """What the training program may know of the problem: `problem` in its config.json."""
        return {}

    @abstractmethod
    def score(self, candidate: Candidate, exam: Exam) -> Score:
        """Judge one candidate. Raises Misbehaved: the candidate cannot be scored, and why."""
