"""Lanes: the environments of one judgement by the control judge, in processes of their own.

There is one for each core that the slot grants, since an environment's code is somebody's: what it prints, a `sys.exit`
or a handler of signals reaches neither the engine nor its output. Every lane has its own environment and seed, so its
episode is the same wherever it is stepped, as long as environments share no state of their module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from environments.judges import Misbehaved, _playing
from environments.judges._leaves import Column, accept, columns, fault, frame_bytes
from environments.judges._playing import EnvSource
from environments.judges._process import ForeignProcess


class Lanes:
    """The running environments, the frame that shows them to the program, and their returns so far."""

    def __init__(self, processes: Sequence[ForeignProcess], sources: Sequence[EnvSource]) -> None:
        """Makes an environment from each source, in at least as many lanes as there are processes."""
        self._processes, self._lanes = processes, len(sources)
        shares = np.array_split(range(self._lanes), len(processes))
        self._parts = [slice(int(share[0]), int(share[-1]) + 1) for share in shares]
        for process, part in zip(processes, self._parts, strict=True):
            process.ask(_playing.begin, sources[part], part.start)
        try:
            spaces = [process.answer() for process in processes]
        except ValueError as wrong:  # it could be made when the campaign began
            raise Misbehaved(str(wrong)) from wrong
        self._seen, self._answered = spaces[0]
        self.answer_bytes = frame_bytes(self._answered, self._lanes)
        """Size of an answer for all lanes."""
        self._step = 0
        self._frame: list[Column] = []

    @property
    def active(self) -> NDArray[np.bool_]:
        """Whether each lane's episode goes on; shape (lanes,)."""
        return self._frame[0]

    @property
    def returns(self) -> list[float]:
        """Of every lane."""
        for process in self._processes:
            process.ask(_playing.returns)
        return [each for process in self._processes for each in process.answer()]

    def describe(self) -> dict[str, object]:
        """What the program needs to read and write frames."""
        return {
            "lanes": self._lanes,
            "observation": [leaf.describe() for leaf in self._seen],
            "action": [leaf.describe() for leaf in self._answered],
        }

    def frame(self) -> bytes:
        """The masks `active` and `episode_start`, and the observations, leaf by leaf."""
        return b"".join(column.tobytes() for column in self._frame)

    def reset(self, seeds: Mapping[int, int]) -> None:
        """Begin an episode in each of these lanes, with its seed."""
        for process in self._processes:
            process.ask(_playing.reset, seeds)
        self._gather()

    def step(self, answer: bytes) -> None:
        """Take one answer for all lanes, and step the active ones. Raises Misbehaved: it is invalid."""
        self._step += 1
        actions = columns(self._answered, self._lanes, answer)
        for at, leaf in enumerate(self._answered):
            if wrong := fault(leaf, actions[at], self.active):
                which = f"action '{leaf.path}'" if leaf.path else "the action"
                raise Misbehaved(f"answered {wrong[1]} for {which} in lane {wrong[0]} at step {self._step}")
            actions[at] = accept(leaf, actions[at])
        for process, part in zip(self._processes, self._parts, strict=True):
            process.ask(_playing.step, [column[part] for column in actions])
        self._gather()

    def _gather(self) -> None:
        """Take in the frames of all processes."""
        frames = [process.answer() for process in self._processes]
        self._frame = [np.concatenate(parts) for parts in zip(*frames, strict=True)]


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
    with ExitStack() as stack:
        shares = range(min(cores, len(sources)))
        yield Lanes([stack.enter_context(ForeignProcess(folder, seconds, check)) for _ in shares], sources)
