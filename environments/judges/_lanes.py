"""Lanes: the environments of one judgement by the control judge.

They run in processes of their own, one for each core that the slot grants, since their code is somebody's: what it
prints, a `sys.exit` or a handler of signals reaches neither the engine nor its output. Every lane has its own
environment and seed, so its episode is the same wherever it is stepped, as long as environments share no state of their
module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from environments.judges import Misbehaved
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
from environments.judges._making import EnvSource, in_words, number_of
from environments.judges._process import ForeignProcess
from environments.score import LARGEST

if TYPE_CHECKING:
    from environments.judges._making import Env


class Lanes(Protocol):
    """The running environments, the frame that shows them to the program, and their returns so far."""

    answer_bytes: int
    """Size of an answer for all lanes."""

    @property
    def active(self) -> NDArray[np.bool_]:
        """Whether each lane's episode goes on; shape (lanes,)."""

    @property
    def returns(self) -> list[float]:
        """Of every lane."""

    def describe(self) -> dict[str, object]:
        """What the program needs to read and write frames."""

    def frame(self) -> bytes:
        """The masks `active` and `episode_start`, and the observations, leaf by leaf."""

    def reset(self, seeds: Mapping[int, int]) -> None:
        """Begin an episode in each of these lanes, with its seed."""

    def step(self, answer: bytes) -> None:
        """Take one answer for all lanes, and step the active ones. Raises Misbehaved: it is invalid."""


class LaneFailed(Misbehaved):
    """An environment failed, or its action is invalid; `lane` is its number."""

    def __init__(self, lane: int, words: str) -> None:
        super().__init__(lane, words)  # both, so that it can be sent to another process
        self.lane = lane

    def __str__(self) -> str:
        return str(self.args[1])


class PlayedLanes:
    """Lanes whose environments are in this process."""

    def __init__(self, envs: Sequence[Env], numbers: Sequence[int]) -> None:
        """`numbers`: by which messages name the lanes, in ascending order."""
        lanes = len(numbers)
        self._numbers = numbers
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
        """What the program needs to read and write frames."""
        return {
            "lanes": len(self._numbers),
            "observation": [leaf.describe() for leaf in self._seen],
            "action": [leaf.describe() for leaf in self._answered],
        }

    def frame(self) -> bytes:
        return bytes(self._frame)

    def reset(self, seeds: Mapping[int, int]) -> None:
        """Begin an episode in each of these lanes that is here, with its seed."""
        for lane, number in enumerate(self._numbers):
            if number not in seeds:
                continue
            try:
                seen, _ = self._envs[lane].reset(seed=seeds[number])
                self._show(lane, seen)
            except (Exception, SystemExit) as error:  # whatever a foreign environment raises
                where = f"at its reset in lane {number}"
                raise LaneFailed(number, f"the environment failed {where}: {in_words(error)}") from error
            self.active[lane] = self._start[lane] = True

    def step(self, answer: bytes) -> None:
        """Take one answer of `answer_bytes` for all lanes, and step the active ones."""
        actions = samples(self._action, iter(self._read(answer)), len(self._numbers))
        self._start[:] = False
        for lane in self.active.nonzero()[0].tolist():
            try:
                after, reward, terminated, truncated, _ = self._envs[lane].step(actions[lane])
                gain = number_of(reward)
                if terminated or truncated:
                    self._hide(lane)
                else:
                    self._show(lane, after)
            except (Exception, SystemExit) as error:  # whatever a foreign environment raises
                words = f"the environment failed {self._where(lane)}: {in_words(error)}"
                raise LaneFailed(self._numbers[lane], words) from error
            if not abs(gain) <= LARGEST:  # comparisons with NaN are false
                raise LaneFailed(self._numbers[lane], f"the environment returned reward {gain} {self._where(lane)}")
            self.returns[lane] += gain

    def leaf_bytes(self) -> tuple[list[int], list[int]]:
        """The bytes that each leaf of an observation and of an action has in a lane."""
        return [frame_bytes([leaf], 1) for leaf in self._seen], [frame_bytes([leaf], 1) for leaf in self._answered]

    def _read(self, answer: bytes) -> list[Column]:
        """The next step's actions by leaf, checked; those of inactive lanes are meaningless."""
        self._step += 1
        raw = zip(self._answered, columns(self._answered, len(self._numbers), answer), strict=True)
        return [self._accept(leaf, column) for leaf, column in raw]

    def _accept(self, leaf: Leaf, column: Column) -> Column:
        found = fault(leaf, column, self.active)
        if found is None:
            return accept(leaf, column)
        lane, wrong = found
        which = f"action '{leaf.path}'" if leaf.path else "the action"
        raise LaneFailed(self._numbers[lane], f"answered {wrong} for {which} {self._where(lane)}")

    def _where(self, lane: int) -> str:
        return f"in lane {self._numbers[lane]} at step {self._step}"

    def _show(self, lane: int, observation: Sample) -> None:
        for leaf, column in self._shown:
            column[lane] = pick(leaf, observation)

    def _hide(self, lane: int) -> None:
        self.active[lane] = False
        for _, column in self._shown:
            column[lane] = 0


class SharedLanes:
    """Lanes that processes step: of n processes, the first has the first part of them, and so on."""

    def __init__(self, processes: Sequence[ForeignProcess], counts: Sequence[int]) -> None:
        """The processes were asked to begin; `counts`: of the lanes of each."""
        self._processes, self._counts = processes, counts
        begun = [process.answer() for process in processes]
        self._described, self._seen, self._answered = begun[0]
        self.answer_bytes = sum(self._answered) * sum(counts)
        self._frame = bytes((2 + sum(self._seen)) * sum(counts))

    @property
    def active(self) -> NDArray[np.bool_]:
        return np.frombuffer(self._frame, np.bool_, sum(self._counts))

    @property
    def returns(self) -> list[float]:
        for process in self._processes:
            process.ask(_returns)
        return [each for process in self._processes for each in process.answer()]

    def describe(self) -> dict[str, object]:
        return {"lanes": sum(self._counts), **self._described}

    def frame(self) -> bytes:
        return self._frame

    def reset(self, seeds: Mapping[int, int]) -> None:
        for process in self._processes:
            process.ask(_reset, seeds)
        self._gather()

    def step(self, answer: bytes) -> None:
        for process, part in zip(self._processes, self._shared(answer), strict=True):
            process.ask(_step, part)
        self._gather()

    def _gather(self) -> None:
        """Take in the frames of all; the fault of the lowest lane counts."""
        faults: list[LaneFailed] = []
        frames: list[bytes] = []
        for process in self._processes:
            try:
                frames.append(process.answer())
            except LaneFailed as failed:
                faults.append(failed)
        if faults:
            raise min(faults, key=lambda failed: failed.lane)
        self._frame = self._joined(frames)

    def _shared(self, answer: bytes) -> list[bytes]:
        """The part of an answer that is for each process."""
        parts: list[list[bytes]] = [[] for _ in self._counts]
        begin = 0
        for size in self._answered:
            for part, count in zip(parts, self._counts, strict=True):
                part.append(answer[begin : begin + size * count])
                begin += size * count
        return [b"".join(part) for part in parts]

    def _joined(self, frames: Sequence[bytes]) -> bytes:
        """The frame of all lanes."""
        parts: list[bytes] = []
        begin = [0] * len(frames)
        for size in (1, 1, *self._seen):
            for number, (frame, count) in enumerate(zip(frames, self._counts, strict=True)):
                parts.append(frame[begin[number] : begin[number] + size * count])
                begin[number] += size * count
        return b"".join(parts)


@contextmanager
def opened(
    sources: Sequence[EnvSource], cores: int, folder: Path | None, seconds: float, check: Callable[[], None]
) -> Iterator[Lanes]:
    """A lane for each source while the block runs, stepped by as many processes as there are cores.

    Args:
        folder: The environment's, of whose modules its code may be.
        seconds: How long they may take over one step.
        check: Raises where the judgement is to end.
    """
    shares = min(cores, len(sources))
    counts = [len(range(share, len(sources), shares)) for share in range(shares)]
    with ExitStack() as stack:
        processes = [stack.enter_context(ForeignProcess(folder, seconds, check)) for _ in counts]
        first = 0
        for process, count in zip(processes, counts, strict=True):
            process.ask(_begin, sources[first : first + count], first)
            first += count
        yield SharedLanes(processes, counts)


_played: PlayedLanes
"""The lanes of this process, if it is one that steps some."""


def _begin(sources: Sequence[EnvSource], first: int) -> tuple[dict[str, object], list[int], list[int]]:
    """Make environments; returns what the program is told of them, and the bytes of each leaf seen and answered."""
    global _played
    _played = PlayedLanes([source.make() for source in sources], range(first, first + len(sources)))
    described = _played.describe()
    del described["lanes"]
    return described, *_played.leaf_bytes()


def _reset(seeds: Mapping[int, int]) -> bytes:
    _played.reset(seeds)
    return _played.frame()


def _step(answer: bytes) -> bytes:
    _played.step(answer)
    return _played.frame()


def _returns() -> list[float]:
    return _played.returns
