"""The contract between a trainer and the engine: config.json, the budget, progress lines and moves; and workers.

A copy stands beside train.py in every workspace of a trainer that imports it. What cannot be trained exits 2 with the
reason on stderr, a training that failed 1 with the reason in out/progress.jsonl too, a cancelled one 42 without a
result. Neither torch nor numpy is imported before it is needed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

P = TypeVar("P")
Config = dict[str, Any]
"""What config.json says: params, seed, budget_seconds, budget_steps, device, cores, memory_gb, out, problem, data.

On the CPU, `cores` is how many processor cores the program has for itself: it is kept on these. `memory_gb` is what it
may use, in GiB; null: three quarters of the machine's."""
CANCELLED = 42
"""The exit status of a cancelled training."""


class Refused(Exception):
    """The configuration asks for what the trainer cannot do; the message says what to change."""


class Failed(Exception):
    """Training went wrong; the message begins with the kind of failure. `retry`: it is the machine's fault."""

    def __init__(self, reason: str, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


class Cancelled(Exception):
    """The file `cancel` has appeared: the result is no longer wanted."""


def parse(
    params: type[P], given: Mapping[str, Any], least: Mapping[str, float] = {}, most: Mapping[str, float] = {},
    choices: Mapping[str, Sequence[str]] = {},
) -> P:  # fmt: skip
    """The dataclass `params` with the given values, of the types of its defaults; Refused names what does not fit.

    Integers must be at least 1 and other numbers at least 0, unless `least` says otherwise.
    """
    defaults: dict[str, Any] = {field.name: field.default for field in fields(params)}  # type: ignore[arg-type]
    for name, value in given.items():
        if name not in defaults:
            raise Refused(f"unknown parameter {name!r}; known are {', '.join(defaults)}")
        kind = type(defaults[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise Refused(f"{name} must be of type {kind.__name__}, got {value!r}")
        if name in choices and value not in choices[name]:
            raise Refused(f"{name} must be one of {', '.join(choices[name])}, got {value!r}")
        low, high = least.get(name, int(kind is int)), most.get(name, math.inf)
        if kind in (int, float) and not (low <= value <= high and math.isfinite(value)):
            raise Refused(f"{name} must be finite and from {low:g} to {high:g}, got {value!r}")
    return params(**given)


class Budget:
    """The clock of one training: seconds since it began, and steps (0: no limit), counted by the trainer in `step`."""

    def __init__(self, seconds: float, steps: int) -> None:
        self.seconds, self.steps = seconds, steps
        self.step, self.stopped, self.began = 0, False, time.monotonic()

    def stop(self, *_: object) -> None:
        """End the budget now; the handler of SIGTERM."""
        self.stopped = True

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def late(self) -> bool:
        """Whether to drop everything: the time is over, or SIGTERM has come."""
        return self.stopped or self.elapsed >= self.seconds

    @property
    def spent(self) -> bool:
        """Whether to begin no further step."""
        return self.late or 0 < self.steps <= self.step

    @property
    def fraction(self) -> float:
        """The spent part, in [0, 1], of seconds or of steps, whichever goes faster."""
        by_seconds, by_steps = self.elapsed / self.seconds, self.step / self.steps if self.steps else 0.0
        # With a budget of steps, seconds have to lead clearly, or a slow start would make a run irreproducible.
        ahead = by_seconds > by_steps + (0.1 if self.steps else 0.0)
        return min(1.0, by_seconds if ahead else by_steps)


class ProgressFile:
    """Writes out/progress.jsonl, the lines that the engine reads while the program trains."""

    def __init__(self, file: TextIO, budget: Budget) -> None:
        self.file, self.budget, self._reported = file, budget, 0.0

    def ready(self) -> None:
        """Start the clock: imports and preparations are over."""
        self.file.write('{"ready": true}\n')
        self.budget.began = time.monotonic()

    def note(self, sentence: str) -> None:
        """Say what to know of the result, which the trial's pages show."""
        self.file.write(json.dumps({"note": sentence}) + "\n")

    @property
    def due(self) -> bool:
        """Whether to report again: at most five times a second."""
        return self.budget.elapsed - self._reported >= 0.2

    def report(self, metrics: Mapping[str, float], returns: Sequence[float] = ()) -> None:
        """Report metrics, with the mean of `returns` as `return/mean`; raises Cancelled if there is a file `cancel`."""
        self._reported = self.budget.elapsed
        mean = {"return/mean": math.fsum(returns) / len(returns)} if returns else {}
        line = {"elapsed": self._reported, "step": self.budget.step, "step_target": self.budget.steps or None}
        self.file.write(json.dumps({**line, "metrics": {**mean, **metrics}}) + "\n")
        if Path("cancel").exists():
            raise Cancelled


class Moves:
    """The judge's end of `python train.py act`: observations come in on stdin, actions go out on stdout."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)  # from here on a stray print, even one from C, is log and cannot garble an answer

    def meet(self, size: int) -> tuple[int, list[bool]]:
        """The policy's seed, and which lanes play the most likely action. (size: numbers per observation)"""
        hello = json.loads(sys.stdin.buffer.readline())
        [self._seen], [self._taken] = hello["observation"], hello["action"]
        if hello["protocol"] != 2 or math.prod(self._seen["shape"]) != size:
            raise Refused(f"protocol {hello['protocol']} with observation {self._seen} does not fit {size} numbers")
        self._lanes, self._size = hello["lanes"], size
        return hello["seed"], hello["deterministic"]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """The observations of all lanes, shape (lanes, size), each to be answered, until the judge closes stdin."""
        import numpy as np

        self._send(b'{"ready": true}\n')
        kind = np.dtype(self._seen["dtype"])
        frame = self._lanes * (2 + kind.itemsize * self._size)
        while data := sys.stdin.buffer.read(frame):
            # The masks `active` and `episode_start`, a byte per lane; a policy with memory forgets where one starts.
            self.active, self.starts = np.frombuffer(data, "?", 2 * self._lanes).reshape(2, -1)
            yield np.frombuffer(data, kind, offset=2 * self._lanes).reshape(self._lanes, -1)

    def answer(self, actions: NDArray[np.generic]) -> None:
        """Send an action for each lane."""
        self._send(actions.astype(self._taken["dtype"]).tobytes())

    def _send(self, data: bytes) -> None:
        self._answers.write(data)
        self._answers.flush()


class Workers:
    """This process and forks of it, which do the same at the same time: each its share.

    `prepare(number, count)` makes, in each of the `count` processes, the function that does its share. The first
    process is number 0, so one alone forks nothing. A fork shares nothing with it but a pipe.
    """

    def __init__(self, count: int, prepare: Callable[[int, int], Callable[..., Any]]) -> None:
        self._pipes: list[Connection] = []
        self._forks: list[ForkProcess] = []
        if count > 1 and (torch := sys.modules.get("torch")) and torch.get_num_threads() > 1:
            raise Refused("forks hang beside OpenMP's threads: call torch.set_num_threads(1) before")
        try:
            for number in range(1, count):
                ours, theirs = Pipe()
                fork = ForkContext().Process(target=_work, args=(theirs, prepare, number, count))
                with warnings.catch_warnings():  # Python 3.12 warns of threads, and none works at this time
                    warnings.simplefilter("ignore", DeprecationWarning)
                    fork.start()
                theirs.close()
                self._pipes.append(ours)
                self._forks.append(fork)
            self._own = prepare(0, count)
            for pipe in self._pipes:
                _received(pipe)
        except BaseException:
            self.__exit__()
            raise

    def __call__(self, budget: Budget, *asked: Any) -> list[Any] | None:
        """What all answer, in the order of their numbers; None if one does, or is not done when the budget is late."""
        for pipe in self._pipes:
            with suppress(BrokenPipeError):  # the end of a fork is told where its answer is read
                pipe.send((budget, *asked))
        answers = [self._own(budget, *asked)]
        for pipe in self._pipes:
            while not pipe.poll(0.05):
                if budget.late:
                    return None
            answers.append(_received(pipe))
        return None if any(answer is None for answer in answers) else answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fork in self._forks:
            fork.kill()
            fork.join()


def _work(pipe: Connection, prepare: Callable[[int, int], Callable[..., Any]], number: int, count: int) -> None:
    """The life of a fork: it does what it is asked, until it is killed. Its failure ends it, with a traceback."""
    for signal_number in (signal.SIGTERM, signal.SIGINT):  # which may reach all processes; the first one decides
        signal.signal(signal_number, signal.SIG_IGN)
    answer = prepare(number, count)
    pipe.send(None)  # it is ready
    while True:
        pipe.send(answer(*pipe.recv()))


def _received(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError) as gone:  # told in a line, so that its traceback is what a log ends with
        raise Failed("one of the processes that play has ended") from gone


class Pool:
    """Environments of EnvPool, side by side; `observations` (N, D) is what they show: a new episode after one's end."""

    def __init__(self, problem: Mapping[str, Any], seeds: Sequence[int]) -> None:
        import envpool

        if problem.get("kwargs"):
            raise Refused(f"EnvPool takes no kwargs, and the problem has {problem['kwargs']}: simulator = 'gymnasium'")
        limit = {"max_episode_steps": limit} if (limit := problem.get("max_episode_steps")) else {}
        self._pool = envpool.make_gymnasium(problem["id"], num_envs=len(seeds), num_threads=1, env_seed=seeds, **limit)
        self._taken = self._pool.action_space
        self.observations = self._flat(self._pool.reset()[0])

    def step(self, moves: NDArray[Any]) -> tuple[NDArray[np.float32], ...]:
        """What a step led to, then a reset where it ended: observations (N, D), rewards, terminated, ended."""
        moves = moves.astype(self._taken.dtype).reshape(-1, *self._taken.shape)
        arrived, rewards, terminated, truncated, _ = self._pool.step(moves)
        later, ended = self._flat(arrived), terminated | truncated
        self.observations = later.copy()
        if ended.any():  # now, because the pool's own reset would take a step, and be a row of its own
            self.observations[ended] = self._flat(self._pool.reset(ended.nonzero()[0])[0])
        return later, *(part.astype("f4") for part in (rewards, terminated, ended))

    def _flat(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        return observations.reshape(len(observations), -1).astype("f4")


def save(out: Path, policy: Any, step: int) -> None:
    """Write a module and its `shape` to out/policy.pt: numbers and CPU tensors, for `weights_only=True`; atomic."""
    import torch

    unfinished, tensors = out / "policy.partial", {name: part.cpu() for name, part in policy.state_dict().items()}
    torch.save({"format": 1, "step": step, **asdict(policy.shape), **tensors}, unfinished)
    unfinished.replace(out / "policy.pt")


def load(out: Path, kind: Callable[[Any], Any], shape: type[Any]) -> Any:
    """What `save` wrote, made again as kind(shape(...)), on the CPU."""
    import torch

    saved = torch.load(out / "policy.pt", map_location="cpu", weights_only=True)
    policy = kind(shape(**{part.name: saved[part.name] for part in fields(shape)}))
    policy.load_state_dict({name: value for name, value in saved.items() if isinstance(value, torch.Tensor)})
    return policy


def use_cuda(config: Config) -> bool:
    import torch

    cuda: bool = config["device"] != "cpu" and torch.cuda.is_available()
    if config["device"] == "cuda" and not cuda:
        raise Refused("device is 'cuda', and torch finds no such GPU: set it to 'auto' or 'cpu'")
    return cuda


Train = Callable[[Config, ProgressFile], None]
Act = Callable[[Path, Moves], None]


def training(config: Config, train: Train, clock: type[Budget] = Budget) -> None:
    """Train as `config` says, with out/progress.jsonl open and SIGTERM ending the budget."""
    out = Path(config["out"])
    out.mkdir(parents=True, exist_ok=True)
    with (out / "progress.jsonl").open("a", buffering=1) as file:
        progress = ProgressFile(file, clock(config["budget_seconds"], config["budget_steps"]))
        signal.signal(signal.SIGTERM, progress.budget.stop)
        try:
            train(config, progress)
        except Failed as failure:
            file.write(json.dumps({"failed": str(failure), "retry": failure.retry}) + "\n")
            raise


def main(
    arguments: Sequence[str], train: Train, act: Act | None = None, check: Train | None = None,
    clock: type[Budget] = Budget,
) -> int:  # fmt: skip
    """Run the trainer as ./config.json and the command line say; its exit status."""
    config = json.loads(Path("config.json").read_text())
    try:
        if act and arguments == ["act"]:
            act(Path(config["out"]), Moves())
        else:
            training(config, check if check and arguments == ["check"] else train, clock)
    except (Refused, Failed) as reason:
        sys.stderr.write(f"{sys.argv[0]}: {reason}\n")
        return 2 if isinstance(reason, Refused) else 1
    except Cancelled:
        return CANCELLED
    return 0
