"""The control judge: it steps the gymnasium environments itself; the program only answers with actions.

The program is started as `python train.py act`; docs/environments.md has the protocol. It is waited for by what the
baseline needs (tasks/control.py), so that it cannot train here for long. In a Box a value outside the bounds is
clipped, as training code does for a Gaussian policy. Messages count steps from 1 and lanes from 0.

The score is made in one mode, deterministic or sampling, as the environment says. Afterwards a few episodes are
played in the other mode, for information: a policy may do well with its noise and fail without it, or the reverse. An
error there costs no score, unless a guard needs its metric.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from environments.judges import Candidate, Exam, Judge, Misbehaved
from environments.judges._conversation import Conversation
from environments.judges._playing import EnvSource, Lanes, Spaces, examine, opened
from environments.judges._process import ForeignProcess
from environments.score import METRIC, Score, source_metric

PROTOCOL = 2
MOST_EPISODES = 1000
_MODES = {True: "return/deterministic", False: "return/sampled"}


class Source(BaseModel):
    """Variant of the environment, with its own keyword arguments; its episodes are averaged separately."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kwargs: dict[str, object] = Field(default={}, description="Keyword arguments, laid over those of the judge.")
    weight: FiniteFloat = Field(default=1, gt=0, le=1e6, description="How much its mean counts, beside the others'.")


class Control(Judge):
    """Episodes of one gymnasium environment, scored by raw, undiscounted returns.

    With sources it is played under several settings, and the score is the weighted mean of their means.
    """

    runs_in: ClassVar[Literal["workspace", "environment"]] = "workspace"

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
    total_seconds: FiniteFloat = Field(default=600, gt=0, description="How long the whole evaluation may take.")

    def command(self) -> str:
        return "python train.py act"

    def measures(self) -> tuple[str, ...]:
        modes = (self.deterministic, not self.deterministic) if self.other_episodes else (self.deterministic,)
        return (*(_MODES[mode] for mode in modes), *map(source_metric, self.sources))

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
            return process.call(examine, dict(zip(self.sources or [""], self.env_sources, strict=True)))

    def problem(self) -> dict[str, object]:
        return {"id": self.id, "kwargs": self.kwargs, "max_episode_steps": self.max_episode_steps}

    def score(self, candidate: Candidate, exam: Exam) -> Score:
        """Play one episode per lane, average the returns of the scored mode, and report both modes beside it.

        The seeds of the episodes and of the policy are separate children of the exam's, which is drawn from a wide
        range, since a program could find the episodes' by brute force.
        """
        for_episodes, for_policy, for_sources = np.random.SeedSequence(exam.seed).spawn(3)
        # 31 bits, because some environments pass their seed to a C int.
        modes = [self.deterministic] * self.episodes + [not self.deterministic] * self.other_episodes
        seeds = [int(word) >> 1 for word in for_episodes.generate_state(len(modes))]
        plays = self._drawn(np.random.default_rng(for_sources))
        talk = Conversation(candidate, self.answer_seconds, self.total_seconds, exam.need)
        with self._opened([self.env_sources[source] for source in plays], exam) as lanes:
            hello = lanes.describe() | {
                "protocol": PROTOCOL,
                "deterministic": modes,
                "seed": int(for_policy.generate_state(1)[0]),
            }
            talk.greet(json.dumps(hello).encode() + b"\n", self.start_seconds)
            counted = _play(lanes, talk, seeds[: self.episodes], first=0)
            waited = talk.waited
            better = exam.higher_is_better
            scores = {self.deterministic: self._scored(counted, plays[: self.episodes], better)}
            with suppress(Misbehaved):
                if others := _play(lanes, talk, seeds[self.episodes :], first=self.episodes):
                    scores[not self.deterministic] = self._scored(others, plays[self.episodes :], better)
        shown = {_MODES[mode]: score.value for mode, score in scores.items() if score.value is not None}
        score = scores[self.deterministic]
        return replace(score, also=shown | score.also, waited=waited)

    def _opened(self, sources: list[EnvSource], exam: Exam) -> AbstractContextManager[Lanes]:
        return opened(sources, exam.cores, exam.folder, self.total_seconds, exam.check)

    @property
    def env_sources(self) -> list[EnvSource]:
        """What environments are made from: one, or one for each source."""
        variants = {f"[control.sources.{name}]": source.kwargs for name, source in self.sources.items()}
        return [
            EnvSource(self.id, self.max_episode_steps, self.kwargs | kwargs, section, self.packages)
            for section, kwargs in (variants or {"[control]": {}}).items()
        ]

    def _drawn(self, rng: np.random.Generator) -> list[int]:
        """The source of each lane, the scored ones first; drawn, so that a lane's number reveals nothing."""
        parts = len(self.sources) or 1
        drawn = [rng.permutation(np.arange(many) % parts) for many in (self.episodes, self.other_episodes)]
        return [int(source) for lanes in drawn for source in lanes]

    def _scored(self, returns: list[float], plays: list[int], higher_is_better: bool) -> Score:
        """The score of the returns of one mode, in the order of its lanes, with each lane's source."""
        if not self.sources:
            return Score.of(returns, higher_is_better)
        by_source = {
            name: [gain for gain, source in zip(returns, plays, strict=True) if source == at]
            for at, name in enumerate(self.sources)
        }
        weights = {name: source.weight for name, source in self.sources.items()}
        return Score.of_sources(by_source, weights, higher_is_better)


def _play(lanes: Lanes, talk: Conversation, seeds: list[int], first: int) -> list[float]:
    """The returns of one episode in each lane from `first` on, one per seed."""
    if not seeds:
        return []
    lanes.reset(dict(enumerate(seeds, first)))
    while lanes.active.any():
        answer = talk.ask(lanes.frame(), lanes.answer_bytes)
        try:
            lanes.step(answer)
        except Misbehaved:
            talk.expect_silence()  # an invalid action may be a leftover of an earlier answer in the pipe
            raise
    talk.expect_silence()
    return lanes.returns[first : first + len(seeds)]
