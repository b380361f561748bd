"""Lanes: the environments of one judgement by the control judge, stepped in this process or on several cores.

Where a slot grants several cores, each steps every n-th lane: one here, the others in workers, processes that are kept
for the next judgement and end with this one. Beside other judgements workers step all lanes, since threads of one
process would take turns. Every lane has its own environment and seed, so its episode is the same wherever it is
stepped, as long as environments share no state of their module.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

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
from environments.judges._making import EnvSource, in_words, made
from environments.score import LARGEST

if TYPE_CHECKING:
    from environments.judges._making import Env


class LaneFailed(Misbehaved):
    """An environment failed, or its action is invalid; `lane` is its number."""

    def __init__(self, lane: int, words: str) -> None:
        super().__init__(words)
        self.lane = lane


@contextmanager
def opened(sources: Sequence[EnvSource], cores: int, beside: bool = False) -> Iterator[Lanes | SharedLanes]:
    """A lane for each source while the block runs, stepped on so many cores; `beside` others, none in this process."""
    shares, here = min(cores, len(sources)), 0 if beside else 1
    if shares == here:
        with made(sources) as envs:
            yield Lanes(envs, range(len(sources)))
        return
    with _workers(shares - here) as workers:
        for share, worker in enumerate(workers, here):
            numbers = range(share, len(sources), shares)
            worker.make(sources[share::shares], numbers, os.sched_getaffinity(0), sys.path)
        with made(sources[: len(sources) if here else 1 : shares]) as envs:
            own = Lanes(envs, range(0, len(sources), shares)) if here else None
            yield SharedLanes(Lanes(envs, range(len(sources))), own, workers)


class Lanes:
    """The running environments, the frame that shows them to the program, and their returns so far."""

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
            except Exception as error:  # whatever a foreign environment raises
                where = f"at its reset in lane {number}"
                raise LaneFailed(number, f"the environment failed {where}: {in_words(error)}") from error
            self.active[lane] = self._start[lane] = True

    def step(self, answer: bytes) -> None:
        """Take one answer of `answer_bytes` for all lanes, and step the active ones."""
        actions = samples(self._action, iter(self.read(answer)), len(self._numbers))
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
                words = f"the environment failed {self._where(lane)}: {in_words(error)}"
                raise LaneFailed(self._numbers[lane], words) from error
            if not abs(gain) <= LARGEST:  # comparisons with NaN are false
                raise LaneFailed(self._numbers[lane], f"the environment returned reward {gain} {self._where(lane)}")
            self.returns[lane] += gain

    def read(self, answer: bytes) -> list[Column]:
        """The next step's actions by leaf, checked; those of inactive lanes are meaningless."""
        self._step += 1
        raw = zip(self._answered, self.answered(answer), strict=True)
        return [self._accept(leaf, column) for leaf, column in raw]

    def answered(self, answer: bytes) -> list[Column]:
        """The columns of an answer."""
        return columns(self._answered, len(self._numbers), answer)

    def take(self, frame: bytes, at: slice) -> None:
        """Lay the frame of some lanes, which were stepped elsewhere, into these."""
        many = len(self._numbers[at])
        self.active[at] = np.frombuffer(frame, np.bool_, many)
        self._start[at] = np.frombuffer(frame, np.bool_, many, many)
        for (_, shown), column in zip(self._shown, columns(self._seen, many, frame, 2 * many), strict=True):
            shown[at] = column

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
    """The same lanes, stepped by workers and perhaps here: share s of n has the lanes s, s + n, s + 2n, ..."""

    def __init__(self, whole: Lanes, own: Lanes | None, workers: Sequence[Worker]) -> None:
        """`whole` shows all lanes and steps none; `own` is the share that is stepped here."""
        self._whole, self._own, self._workers = whole, own, workers
        self._shares = len(workers) + (own is not None)
        self.active = whole.active
        self.answer_bytes = whole.answer_bytes

    @property
    def returns(self) -> list[float]:
        """Of every lane."""
        for worker in self._workers:
            worker.ask("returns")
        own = [self._own.returns] if self._own else []
        found = self._whole.returns.copy()
        for share, part in enumerate([*own, *(worker.answer() for worker in self._workers)]):
            found[share :: self._shares] = part
        return found

    def describe(self) -> dict[str, object]:
        return self._whole.describe()

    def frame(self) -> bytes:
        return self._whole.frame()

    def reset(self, seeds: Mapping[int, int]) -> None:
        for worker in self._workers:
            worker.settle()  # it has made its environments meanwhile
            worker.ask("reset", seeds)
        self._gather(lambda own: own.reset(seeds))

    def step(self, answer: bytes) -> None:
        self._whole.read(answer)  # an invalid action is found before a lane is stepped, as on one core
        parts = self._whole.answered(answer)
        answers = [b"".join(part[share :: self._shares].tobytes() for part in parts) for share in range(self._shares)]
        for worker, part in zip(self._workers, answers[-len(self._workers) :], strict=True):
            worker.ask("step", part)
        self._gather(lambda own: own.step(answers[0]))

    def _gather(self, do: Callable[[Lanes], None]) -> None:
        """Do the own share, and take in all; the fault of the lowest lane counts, as on one core."""
        faults: list[LaneFailed] = []
        frames: list[bytes] = []

        def own_frame() -> bytes:
            assert self._own is not None, "there is a share to be stepped here"
            do(self._own)
            return self._own.frame()

        for part in ([own_frame] if self._own else []) + [worker.answer for worker in self._workers]:
            try:
                frames.append(part())
            except LaneFailed as failed:
                faults.append(failed)
        if faults:
            raise min(faults, key=lambda failed: failed.lane)
        for share, frame in enumerate(frames):
            self._whole.take(frame, slice(share, None, self._shares))


class WorkerLost(Misbehaved):
    """A worker ended without an answer."""


class Worker:
    """A process that steps lanes. It is spoken to by one thread at a time, and ends when its connection is closed."""

    def __init__(self) -> None:
        self.was_idle = False
        """Whether it was kept from an earlier judgement, and has not answered since."""
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "environments.judges._lanes", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
        self._talk = Connection(ours.detach())
        self.owes = False
        """Whether it has not answered yet."""

    @property
    def is_usable(self) -> bool:
        return not self.owes and self._process.poll() is None

    def ask(self, what: str, *given: object) -> None:
        try:
            self._talk.send((what, *given))
        except OSError:
            raise self._lost() from None
        self.owes = True

    def make(self, *given: object) -> None:
        """Have it make environments. If it ended while it was idle, that is no fault of this judgement: another process
        makes them.
        """
        self._given = given
        try:
            self.ask("make", *given)
        except WorkerLost as lost:
            self._begin_again(lost)

    def settle(self) -> None:
        """Wait until it has made them."""
        if not self.owes:
            return
        try:
            self.answer()
        except WorkerLost as lost:
            self._begin_again(lost)
            self.answer()

    def _begin_again(self, lost: WorkerLost) -> None:
        if not self.was_idle:
            raise lost
        self.was_idle = False
        self._talk.close()
        self._start()
        self.ask("make", *self._given)

    def answer(self) -> Any:
        """The answer to what it was asked; raises what happened there."""
        try:
            kind, *found = self._talk.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        self.owes = self.was_idle = False
        if kind == "failed":
            raise LaneFailed(*found)
        if kind == "wrong":
            raise ValueError(*found)
        return found[0]

    def end(self) -> None:
        self._talk.close()
        self._process.kill()
        self._process.wait()

    def _lost(self) -> WorkerLost:
        self._process.kill()
        return WorkerLost(f"a process that steps environments ended with status {self._process.wait()}")


_idle: list[Worker] = []
_lock = threading.Lock()


@contextmanager
def _workers(count: int) -> Iterator[list[Worker]]:
    """So many workers for one judgement; those that can be used again are kept."""
    with _lock:
        taken = [_idle.pop() for _ in range(min(count, len(_idle)))]
    for worker in [worker for worker in taken if not worker.is_usable]:
        worker.end()
        taken.remove(worker)
    taken += [Worker() for _ in range(count - len(taken))]
    try:
        yield taken
    finally:
        for worker in taken:
            with suppress(Misbehaved):
                if worker.is_usable:
                    worker.ask("close")
                    worker.answer()
            if worker.is_usable:
                worker.was_idle = True
                with _lock:
                    _idle.append(worker)
            else:
                worker.end()


@atexit.register
def _end_idle() -> None:
    while _idle:
        _idle.pop().end()


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, even if an environment never comes back from a step."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(descriptor: int) -> None:
    """Step lanes for the process at the other end, until it is gone."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    talk, lanes = Connection(descriptor), None
    with ExitStack() as envs:
        while True:
            try:
                what, *given = talk.recv()
            except (EOFError, OSError):
                return
            answer: object = None
            try:
                match what:
                    case "make":
                        sources, numbers, cores, sys.path[:] = given
                        os.sched_setaffinity(0, cores)
                        lanes = Lanes(envs.enter_context(made(sources)), numbers)
                    case "close":
                        envs.close()
                        lanes = None
                    case "returns":
                        assert lanes is not None, "its environments were made"
                        answer = lanes.returns
                    case _:
                        assert lanes is not None, "its environments were made"
                        (lanes.reset if what == "reset" else lanes.step)(*given)
                        answer = lanes.frame()
            except LaneFailed as failed:
                talk.send(("failed", failed.lane, str(failed)))
            except ValueError as wrong:
                talk.send(("wrong", str(wrong)))
            else:
                talk.send(("done", answer))


if __name__ == "__main__":
    main(int(sys.argv[1]))
