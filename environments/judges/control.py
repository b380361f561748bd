"""The control judge: it steps the gymnasium environments itself, and the program only answers moves.

`python train.py act` gets one JSON line (lanes, observation and action leaves, for each lane whether to be
`deterministic`, the policy's own seed), answers `{"ready": true}`, and then answers frames: masks `active` and
`episode_start` (one byte per lane each) and the observation leaves come in, the action leaves go out, raw
little-endian arrays without length prefixes. Each lane plays exactly one episode. In the end its standard input is
closed.

One mode makes the score, the environment's choice. When its lanes are done a few more play in the other one, to be
looked at: a policy may train well and still fail with its noise taken away, or the other way round. Whatever goes
wrong there costs no score.

An answer must be finite and lie in its space, with one mercy: in a Box a value outside the bounds is clipped
to them, as training code does for a Gaussian policy. What is answered for an inactive lane is ignored.
Messages count steps from 1 and lanes from 0.
"""

from __future__ import annotations

import difflib
import importlib
import json
import math
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from environments.judges import Candidate, Judge, Misbehaved
from environments.judges._leaves import (
    Column,
    Leaf,
    Sample,
    accept,
    columns,
    fault,
    frame_bytes,
    leaves,
    pick,
    samples,
    tree,
)
from environments.score import Score

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]  # what it observes is known only to its space

PROTOCOL = 2
LARGEST = 1e100
"""Rewards beyond it are refused like NaN: a diverged simulation, whose squares no standard error can hold."""
_LINE_BYTES = 64 * 1024
_SILENCE_SECONDS = 0.05
_MODES = {True: "return/deterministic", False: "return/sampled"}
_READY = '{"ready": true}'
_EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "phys2d": "jax", "tabular": "jax"}
"""The extra of gymnasium that installs what a part of it (`gymnasium.envs.<part>`) needs."""


class Control(Judge):
    """Episodes of one gymnasium environment, scored by their raw, undiscounted returns."""

    runs_in: ClassVar[Literal["workspace", "environment"]] = "workspace"

    id: str = Field(
        description="Registered gymnasium id with its version; `module:id` imports a module first."
    )
    kwargs: dict[str, object] = Field(default={}, description="Keyword arguments of the environment.")
    max_episode_steps: int | None = Field(
        default=None, ge=1, description="Steps after which an episode is cut; absent: its own limit."
    )
    episodes: int = Field(
        default=100, ge=1, le=1000, description="Episodes per evaluation, all side by side."
    )
    other_episodes: int = Field(
        default=20, ge=0, le=1000, description="Episodes in the other mode besides, never part of the score."
    )
    deterministic: bool = Field(
        default=True, description="Whether the policy shall answer its mode; otherwise it samples."
    )
    start_seconds: float = Field(
        default=60, gt=0, allow_inf_nan=False, description="How long the program may take until it is ready."
    )
    answer_seconds: float = Field(
        default=10, gt=0, allow_inf_nan=False, description="How long it may take over one frame."
    )
    total_seconds: float = Field(
        default=600, gt=0, allow_inf_nan=False, description="How long the whole evaluation may take."
    )

    def command(self) -> str:
        return "python train.py act"

    def check(self) -> None:
        with closing(self._make()) as env:
            observation = tree(env.observation_space, "observation")
            tree(env.action_space, "action")
            if env.spec is None or env.spec.max_episode_steps is None:
                raise ValueError(
                    f"{self.id} has no time limit, so an episode may never end: "
                    "set max_episode_steps in [control]"
                )
            try:
                first, _ = env.reset(seed=0)
                shapes = [(leaf, np.shape(pick(leaf, first))) for leaf in leaves(observation)]
            except Exception as error:  # whatever a foreign environment raises
                raise ValueError(
                    f"{self.id} with kwargs {self.kwargs} fails at its reset ({_words(error)}): "
                    "correct kwargs in [control] or the environment"
                ) from error
        for leaf, shape in shapes:
            if shape != leaf.shape:
                raise ValueError(
                    f"{self.id} observes shape {shape} in leaf '{leaf.path}', its space says {leaf.shape}: "
                    "correct the environment's observation_space"
                )

    def problem(self) -> dict[str, object]:
        return {"id": self.id, "kwargs": self.kwargs, "max_episode_steps": self.max_episode_steps}

    def score(self, candidate: Candidate, seed: int, higher_is_better: bool) -> Score:
        """Play one episode per lane, average the returns of those that count, and show both modes beside it.

        The seeds of the episodes and of the policy are separate children of `seed`. A program that could try
        all seeds there may be would find its own, and with it the episodes': draw from a wide range.
        """
        for_episodes, for_policy = np.random.SeedSequence(seed).spawn(2)
        # 31 bits, because some environments hand their seed to a C int.
        modes = [self.deterministic] * self.episodes + [not self.deterministic] * self.other_episodes
        seeds = [int(word) >> 1 for word in for_episodes.generate_state(len(modes))]
        talk = _Conversation(candidate, self.answer_seconds, self.total_seconds)
        with ExitStack() as stack:
            lanes = _Lanes([stack.enter_context(closing(self._make())) for _ in modes])
            hello = lanes.describe() | {
                "protocol": PROTOCOL,
                "deterministic": modes,
                "seed": int(for_policy.generate_state(1)[0]),
            }
            talk.greet(json.dumps(hello).encode() + b"\n", self.start_seconds)
            counted = _play(lanes, talk, seeds[: self.episodes], first=0)
            score = Score.of(counted, higher_is_better)
            also = {_MODES[self.deterministic]: math.fsum(counted) / len(counted)}
            with suppress(Misbehaved):
                if others := _play(lanes, talk, seeds[self.episodes :], first=self.episodes):
                    also[_MODES[not self.deterministic]] = math.fsum(others) / len(others)
            return replace(score, also=also)

    def _make(self) -> Env:
        """One environment.

        Raises:
            ValueError: there is none of that name, or it cannot be built.
        """
        import gymnasium

        name = _registered(self.id)
        try:
            return gymnasium.make(name, self.max_episode_steps, disable_env_checker=True, **self.kwargs)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            entry_point = str(gymnasium.registry[name].entry_point)
            raise ValueError(_uninstalled(self.id, entry_point, error)) from error
        except Exception as error:  # whatever a foreign environment raises
            raise ValueError(
                f"{self.id} cannot be built with kwargs {self.kwargs} ({_words(error)}): "
                "correct kwargs in [control]"
            ) from error


def _play(lanes: _Lanes, talk: _Conversation, seeds: list[int], first: int) -> list[float]:
    """The returns of one episode in each lane from `first` on, as many as there are seeds."""
    if not seeds:
        return []
    lanes.reset(seeds, first)
    while lanes.active.any():
        answer = talk.ask(lanes.frame(), lanes.answer_bytes)
        try:
            lanes.step(answer)
        except Misbehaved:
            talk.expect_silence()  # senseless may mean: left in the pipe by an earlier answer
            raise
    talk.expect_silence()
    return lanes.returns[first : first + len(seeds)]


class _Lanes:
    """The environments under way, the frame that shows them to the program, and their returns so far."""

    def __init__(self, envs: list[Env]) -> None:
        lanes = len(envs)
        self._envs = envs
        self._action = tree(envs[0].action_space, "action")
        self._seen = leaves(tree(envs[0].observation_space, "observation"))
        self._answered = leaves(self._action)
        self.answer_bytes = frame_bytes(self._answered, lanes)
        self._frame = bytearray(2 * lanes + frame_bytes(self._seen, lanes))
        self.active = np.ndarray((lanes,), np.bool_, self._frame)
        self._start = np.ndarray((lanes,), np.bool_, self._frame, lanes)
        shown = columns(self._seen, lanes, self._frame, 2 * lanes)
        self._shown = list(zip(self._seen, shown, strict=True))
        self._step = 0
        self.returns = [0.0] * lanes

    def describe(self) -> dict[str, object]:
        """What the program must know to read and write frames."""
        return {
            "lanes": len(self._envs),
            "observation": [leaf.describe() for leaf in self._seen],
            "action": [leaf.describe() for leaf in self._answered],
        }

    def frame(self) -> bytes:
        return bytes(self._frame)

    def reset(self, seeds: list[int], first: int) -> None:
        """Begin an episode in each lane from `first` on, as many as there are seeds."""
        for lane, seed in enumerate(seeds, first):
            try:
                seen, _ = self._envs[lane].reset(seed=seed)
                self._show(lane, seen)
            except Exception as error:  # whatever a foreign environment raises
                where = f"at its reset in lane {lane}"
                raise Misbehaved(f"the environment failed {where}: {_words(error)}") from error
            self.active[lane] = self._start[lane] = True

    def step(self, answer: bytes) -> None:
        """Take one answer of `answer_bytes` for all lanes, and move those that are active."""
        self._step += 1
        actions = self._actions(answer)
        self._start[:] = False
        for lane in self.active.nonzero()[0].tolist():
            try:
                after, reward, terminated, truncated, _ = self._envs[lane].step(actions[lane])
                gain = float(reward)
                if terminated or truncated:
                    self._hide(lane)
                else:
                    self._show(lane, after)
            except Exception as error:  # whatever a foreign environment raises
                raise Misbehaved(f"the environment failed {self._where(lane)}: {_words(error)}") from error
            if not abs(gain) <= LARGEST:  # NaN compares as false
                raise Misbehaved(f"the environment returned reward {gain} {self._where(lane)}")
            self.returns[lane] += gain

    def _actions(self, answer: bytes) -> list[Sample]:
        """One action per lane; those of inactive lanes have no meaning."""
        lanes = len(self._envs)
        raw = zip(self._answered, columns(self._answered, lanes, answer), strict=True)
        return samples(self._action, iter([self._accept(leaf, column) for leaf, column in raw]), lanes)

    def _accept(self, leaf: Leaf, column: Column) -> Column:
        found = fault(leaf, column, self.active)
        if found is None:
            return accept(leaf, column)
        lane, wrong = found
        which = f"action '{leaf.path}'" if leaf.path else "the action"
        raise Misbehaved(f"answered {wrong} for {which} {self._where(lane)}")

    def _where(self, lane: int) -> str:
        return f"in lane {lane} at step {self._step}"

    def _show(self, lane: int, observation: Sample) -> None:
        for leaf, column in self._shown:
            column[lane] = pick(leaf, observation)

    def _hide(self, lane: int) -> None:
        self.active[lane] = False
        for _, column in self._shown:
            column[lane] = 0


class _Conversation:
    """The program at the other end of the pipe, under a deadline for each answer and one for everything."""

    def __init__(self, candidate: Candidate, answer_seconds: float, total_seconds: float) -> None:
        self._candidate = candidate
        self._answer_seconds = answer_seconds
        self._total_seconds = total_seconds
        self._ends = time.monotonic() + total_seconds
        self._asked = 0

    def greet(self, hello: bytes, seconds: float) -> None:
        try:
            self._candidate.send(hello, self._at_most(seconds))
            line = self._candidate.receive_line(_LINE_BYTES, self._at_most(seconds))
        except Misbehaved as error:
            raise self._blame("handshake", error) from error
        if not _is_ready(line):
            raise Misbehaved(f"handshake: answered {_quote(line)} instead of {_READY}")

    def ask(self, frame: bytes, size: int) -> bytes:
        """The answer of `size` bytes to the next frame."""
        self._asked += 1
        try:
            self._candidate.send(frame, self._at_most(self._answer_seconds))
            return self._candidate.receive(size, self._at_most(self._answer_seconds))
        except Misbehaved as error:
            raise self._blame(f"step {self._asked}", error) from error

    def expect_silence(self) -> None:
        """Make sure that nothing follows an answer: more would mean that answers and frames are out of step.

        How the program ends afterwards is its own affair; libraries that fail at the exit cost no score.
        """
        try:
            self._candidate.receive(1, _SILENCE_SECONDS)
        except Misbehaved:
            return  # nothing came, or the program has ended: silence either way
        raise Misbehaved(
            f"step {self._asked}: wrote more than its answers. Either its frames are too long, "
            "or something prints to standard output"
        )

    def _at_most(self, seconds: float) -> float:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise Misbehaved("out of time")
        return min(seconds, left)

    def _blame(self, when: str, error: Misbehaved) -> Misbehaved:
        """The same, with the moment in front, or the total time where that was the one that ran out."""
        if time.monotonic() >= self._ends:
            return Misbehaved(f"{when}: the evaluation was not over after {self._total_seconds:g} s in all")
        return Misbehaved(f"{when}: {error}")


def _is_ready(line: bytes) -> bool:
    try:
        answer: object = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and answer.get("ready") is True


def _quote(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _registered(env_id: str) -> str:
    """The name under which gymnasium knows `env_id`, after importing its module where it names one."""
    import gymnasium

    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(_uninstalled(env_id, "", error)) from error
    if name not in gymnasium.registry:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3, cutoff=0.6)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Is the package that registers it installed?"
        raise ValueError(
            f"no gymnasium environment is registered as {name!r}. {hint} (`module:id` imports a module first)"
        )
    return name


def _uninstalled(env_id: str, entry_point: str, error: Exception) -> str:
    extra = next((extra for part, extra in _EXTRAS.items() if f"gymnasium.envs.{part}" in entry_point), None)
    if extra is not None:
        remedy = f'pip install "gymnasium[{extra}]"'
    elif isinstance(error, ModuleNotFoundError) and error.name is not None:
        remedy = f"install the package that provides the module {error.name.partition('.')[0]!r}"
    else:
        remedy = "install what it asks for"
    return f"{env_id} needs a package that is not installed ({error}): {remedy}"
