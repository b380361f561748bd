"""The control judge: it steps the gymnasium environments itself; the program only answers with actions.

The program is started as `python train.py act`; docs/environments.md has the protocol. It is waited for by what the
baseline needs (tasks/control.py), so that it cannot train here for long. Messages count steps from 1 and lanes from 0.

After the scored episodes a few are played in the other mode, sampling or not, for information: a policy may fail
without its noise, or with it. An error there costs no score, unless a guard needs its metric.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat, model_validator

from environments.judges import BlockUnits, Candidate, Exam, Judge, Misbehaved
from environments.judges._playing import EnvSource, Lanes, Spaces, examine, frame_bytes
from environments.judges._process import ForeignProcess
from environments.score import METRIC, Score, Wait

PROTOCOL = 2
MOST_EPISODES = 1000
_LINE_BYTES = 64 * 1024
_SILENCE_SECONDS = 0.05
_READY = '{"ready": true}'
_MODES = {True: "return/deterministic", False: "return/sampled"}


class Conversation:
    """The connection to a program that has just started, with a deadline per answer and for all waiting."""

    def __init__(self, candidate: Candidate, answer_seconds: float, need: Wait | None = None) -> None:
        self._candidate, self._answer_seconds, self._need = candidate, answer_seconds, need
        self._asked, self._waits_since = 0, time.monotonic()
        self._ready = self._answering = 0.0

    def greet(self, spaces: Spaces, deterministic: list[bool], seed: int, seconds: float) -> None:
        """Say what frames look like and the mode of each lane, and wait until the program is ready."""
        seen, answered = ([leaf.describe() for leaf in leaves] for leaves in spaces)
        hello = {
            "protocol": PROTOCOL, "lanes": len(deterministic), "observation": seen, "action": answered,
            "deterministic": deterministic, "seed": seed,
        }  # fmt: skip
        receive = partial(self._candidate.receive_line, _LINE_BYTES)
        line = self._exchange(json.dumps(hello).encode() + b"\n", seconds, receive)
        self._ready = time.monotonic() - self._waits_since
        try:
            answer: object = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or answer.get("ready") is not True:
            said = line[:80].decode("utf-8", "backslashreplace")
            raise Misbehaved(f"handshake: answered {said!r} instead of {_READY}")

    def ask(self, frame: bytes, size: int) -> bytes:
        """The answer of `size` bytes to the next frame."""
        self._asked += 1
        self._waits_since = time.monotonic()
        answer = self._exchange(frame, self._answer_seconds, partial(self._candidate.receive, size))
        self._answering += time.monotonic() - self._waits_since
        return answer

    @property
    def waited(self) -> Wait:
        """For how long the program was waited for until its latest answer."""
        return Wait(round(self._ready, 3), round(self._answering, 6), self._asked)

    def expect_silence(self) -> None:
        """Make sure that nothing follows the last answer: more would mean that answers and frames are out of step."""
        try:
            self._candidate.receive(1, _SILENCE_SECONDS)
        except Misbehaved:
            return  # nothing came, or the program has ended, in whatever way
        raise Misbehaved(
            f"step {self._asked}: wrote more than its answers. Either its frames are too long, "
            "or something prints to standard output"
        )

    def _exchange(self, message: bytes, seconds: float, receive: Callable[[float], bytes]) -> bytes:
        """The answer to a message. Raises Misbehaved with the moment in front."""
        when = f"step {self._asked}" if self._asked else "handshake"
        most = self._need.most(self._asked) if self._need else math.inf
        try:
            self._candidate.send(message, min(seconds, most - self._waited_for()))
            return receive(min(seconds, most - self._waited_for()))
        except Misbehaved as error:
            why, waited = str(error), self._waited_for()
            if waited >= most:
                why = (
                    f"was waited for {waited:.1f} s in all, and may be for {most:.1f} s, by what the baseline needed "
                    "under judgement: it may play, not train"
                )
            raise Misbehaved(f"{when}: {why}") from error

    def _waited_for(self) -> float:
        return self._ready + self._answering + time.monotonic() - self._waits_since


class Source(BaseModel, frozen=True, extra="forbid"):
    """Variant of the environment, with its own keyword arguments; its episodes are averaged separately."""

    kwargs: dict[str, object] = Field(default={}, description="Keyword arguments, laid over those of the judge.")
    weight: FiniteFloat = Field(default=1, gt=0, le=1e6, description="How much its mean counts, beside the others'.")


class Control(Judge):
    """Episodes of one gymnasium environment, scored by raw, undiscounted returns."""

    runs_in: ClassVar[Literal["workspace", "environment"]] = "workspace"
    block_units: ClassVar[BlockUnits] = "fresh"

    id: str = Field(description="Registered gymnasium id with its version; `module:id` imports a module first.")
    kwargs: dict[str, object] = Field(default={}, description="Keyword arguments of the environment.")
    packages: tuple[str, ...] = Field(
        default=(),
        description="Folders in which the module of `id` and what it imports are looked for after all others.",
    )
    sources: dict[Annotated[str, Field(pattern=METRIC)], Source] = Field(
        default={}, max_length=50, description="Settings to play under, by name, each an equal part of the episodes."
    )
    max_episode_steps: int | None = Field(
        default=None, ge=1, description="Steps after which an episode is cut; absent: its own limit."
    )
    episodes: int = Field(default=100, ge=1, le=MOST_EPISODES, description="Episodes per evaluation, all side by side.")
    other_episodes: int = Field(
        default=20, ge=0, le=MOST_EPISODES, description="Episodes in the other mode besides, never part of the score."
    )
    deterministic: bool = Field(
        default=True, description="Whether the policy shall answer its mode; otherwise it samples."
    )
    start_seconds: FiniteFloat = Field(default=60, gt=0, description="How long the program may take until it is ready.")
    answer_seconds: FiniteFloat = Field(default=10, gt=0, description="How long it may take over one frame.")

    def command(self) -> str:
        return "python train.py act"

    def measures(self) -> tuple[str, ...]:
        modes = (self.deterministic, not self.deterministic) if self.other_episodes else (self.deterministic,)
        return (*(_MODES[mode] for mode in modes), *(f"source/{name}" for name in self.sources))

    @model_validator(mode="after")
    def _episodes_are_split_evenly(self) -> Control:
        for key, episodes in (("episodes", self.episodes), ("other_episodes", self.other_episodes)):
            if episodes % (parts := len(self.sources) or 1):
                raise ValueError(f"{key} must be a multiple of {parts}, the number of sources, got {episodes}")
        return self

    def check(self, folder: Path) -> None:
        self.spaces(folder)

    def spaces(self, folder: Path) -> Spaces:
        """The leaves of observations and actions, which all sources share. Raises as `check`."""
        with ForeignProcess(folder, self.total_seconds) as process:
            return process.call(examine, self.env_sources)

    def problem(self) -> dict[str, object]:
        return {"id": self.id, "kwargs": self.kwargs, "max_episode_steps": self.max_episode_steps}

    def score(self, candidate: Candidate, exam: Exam) -> Score:
        # Separate children: the program is told the policy's, and could find the episodes' from a small one.
        for_episodes, for_policy, for_sources = np.random.SeedSequence(exam.seed).spawn(3)
        # 31 bits, because some environments pass their seed to a C int.
        modes = [self.deterministic] * self.episodes + [not self.deterministic] * self.other_episodes
        seeds = [int(word) >> 1 for word in for_episodes.generate_state(len(modes))]
        plays = self._drawn(np.random.default_rng(for_sources))
        talk = Conversation(candidate, self.answer_seconds, exam.need)
        with self._opened([self.env_sources[source] for source in plays], exam) as lanes:
            spaces = lanes.call(Lanes.leaves)
            talk.greet(spaces, modes, int(for_policy.generate_state(1)[0]), self.start_seconds)
            play = partial(_play, lanes, talk, frame_bytes(spaces[1], len(modes)))
            counted = play(seeds[: self.episodes], first=0)
            waited = talk.waited
            scores = {self.deterministic: self._scored(counted, plays[: self.episodes])}
            with suppress(Misbehaved):
                if others := play(seeds[self.episodes :], first=self.episodes):
                    scores[not self.deterministic] = self._scored(others, plays[self.episodes :])
        shown = {_MODES[mode]: score.value for mode, score in scores.items() if score.value is not None}
        score = scores[self.deterministic]
        return replace(score, also=shown | score.also, waited=waited)

    @contextmanager
    def _opened(self, sources: list[EnvSource], exam: Exam) -> Iterator[ForeignProcess]:
        """The process with a lane for each source."""
        with ForeignProcess(exam.folder, self.total_seconds, exam.check) as process:
            process.call(Lanes, sources)
            yield process

    @property
    def env_sources(self) -> list[EnvSource]:
        """What environments are made from: one, or one for each source."""
        variants = [source.kwargs for source in self.sources.values()] or [{}]
        return [EnvSource(self.id, self.max_episode_steps, self.kwargs | own, self.packages) for own in variants]

    def _drawn(self, rng: np.random.Generator) -> list[int]:
        """The source of each lane, the scored ones first; drawn, so that a lane's number reveals nothing."""
        parts = len(self.sources) or 1
        each = (rng.permutation(np.arange(many) % parts) for many in (self.episodes, self.other_episodes))
        return [int(source) for lanes in each for source in lanes]

    def _scored(self, returns: list[float], plays: list[int]) -> Score:
        """The score of the returns of one mode's lanes, each with its source."""
        if not self.sources:
            return Score.of(returns)
        by_source = {
            name: [gain for gain, source in zip(returns, plays, strict=True) if source == at]
            for at, name in enumerate(self.sources)
        }
        weights = {name: source.weight for name, source in self.sources.items()}
        return Score.of_sources(by_source, weights)


def _play(lanes: ForeignProcess, talk: Conversation, answer_bytes: int, seeds: list[int], first: int) -> list[float]:
    """The returns of one episode in each lane from `first` on, one per seed."""
    frame = lanes.call(Lanes.reset, dict(enumerate(seeds, first)))
    while frame:
        answer = talk.ask(frame, answer_bytes)
        try:
            frame = lanes.call(Lanes.step, answer)
        except Misbehaved:
            talk.expect_silence()  # an invalid action may be a leftover of an earlier answer in the pipe
            raise
    talk.expect_silence()
    return lanes.call(Lanes.returns)[first : first + len(seeds)]
