"""Scoring completions with a verifiers taskset: its `Task.score`, on a trace of two turns that is built here.

    python -P -B _scoring.py

A program by itself, which `_taskset.py` starts and speaks to in lines of JSON. Each names a `taskset`, a `pool` and its
`ids`, as `Scorer` has them, and how long loading these may take, `load_seconds`:

    <- {..., "places": [2, 0]}                                      which lines of the pool to ask
    -> {"prompts": [[{"role": "user", "content": "3+4"}], ...]}
    <- {..., "answered": [[2, "7"], [0, "5"]], "seconds": 30}       completions of them, and how long one may take
    -> {"reward": 1.0}                                              for each, in their order
    -> {"wrong": "..."}                                             in place of any of these, and nothing after it
    -> {"wrong": "...", "last": true}                               the same, and it ends

What takes too long ends it with status 1, whatever that does meanwhile. The taskset is loaded from its file and trusted
as the judge is. It needs no harness, no runtime and no network; a reward that asks for a runtime cannot be had here.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import hashlib
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

Task = Any  # vf.Task: verifiers has no types
FIRST_TO_GO = 900
"""OOM score: it is killed before the engine and before any training."""


class Scorer:
    """The tasks of one pool, with the answers to its questions."""

    def __init__(self, taskset: Path, pool: Path, ids: Sequence[str]) -> None:
        """Args:
            taskset: A module that exports one taskset, whose config has a `path`.
            pool: The file of questions, given to it as `path`.
            ids: The ids of the questions in that file, in order.

        Raises:
            ValueError: it is no such module, or makes other tasks of the file.
        """
        try:
            self._tasks = list(_taskset(taskset, pool))
        except BaseException as wrong:  # whatever a foreign module raises
            raise ValueError(f"{taskset.name} cannot be used ({type(wrong).__name__}: {wrong})") from wrong
        own = [task.data.id for task in self._tasks]
        if len(own) != len(ids) or any(name not in (None, given) for name, given in zip(own, ids, strict=True)):
            raise ValueError(
                f"{taskset.name} makes {len(own)} tasks of the {len(ids)} questions in {pool.name}, or in another "
                "order: it must make one of each line"
            )
        for task in self._tasks[:1]:
            _check_rewards(taskset.name, task)
        self._ids = ids

    def prompt(self, place: int) -> list[dict[str, str]]:
        """The prompt of the question in that line, as chat messages.

        Raises:
            ValueError: it is not made of text.
        """
        data = self._tasks[place].data
        system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        if isinstance(data.prompt, str):
            return [*system, {"role": "user", "content": data.prompt}]
        messages = [message.model_dump(exclude_none=True) for message in data.prompt or []]
        if not messages or any(not isinstance(message.get("content"), str) for message in messages):
            raise ValueError(f"question {self._ids[place]} is not asked in text: a text judge asks in text alone")
        return [*system, *messages]

    async def reward(self, place: int, completion: str) -> float:
        """The reward of a completion of the question in that line.

        Raises:
            ValueError: it cannot be computed, or is not finite.
        """
        task = self._tasks[place]
        trace = _trace(task, self.prompt(place), completion)
        try:
            await task.score(trace)
        except BaseException as wrong:  # whatever a foreign reward raises
            fault = f"{type(wrong).__name__}: {wrong}"
            raise ValueError(f"the reward of question {self._ids[place]} failed ({fault})") from wrong
        if not trace.rewards or None in trace.rewards.values() or not math.isfinite(trace.reward):
            given = trace.reward if trace.rewards else "none"
            raise ValueError(f"the reward of question {self._ids[place]} is {given}, not a finite number")
        return float(trace.reward)


def _taskset(file: Path, pool: Path) -> Iterable[Task]:
    gc.disable()  # among what libraries leave when they are imported is no garbage: to search it costs a fifth of that
    try:
        vf, generic = (importlib.import_module(f"verifiers.v1{part}") for part in ("", ".utils.generic"))
        module = _module(file, _digest(file))
    finally:
        gc.freeze()
        gc.enable()
    exported = [getattr(module, name) for name in getattr(module, "__all__", ())]
    found = [thing for thing in exported if isinstance(thing, type) and issubclass(thing, vf.Taskset)]
    if len(found) != 1:
        raise TypeError(f"it exports {len(found)} subclasses of vf.Taskset in __all__, not one")
    config = generic.concrete_type(found[0], vf.TasksetConfig, origin=vf.Taskset) or vf.TasksetConfig
    tasks: Iterable[Task] = found[0](config(path=str(pool)))
    return tasks


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


@lru_cache(maxsize=8)
def _module(file: Path, digest: str) -> ModuleType:
    """The module in a file, executed once per content."""
    name = f"nightshift_taskset_{digest}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, f"{file} is no Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are looked up there
    spec.loader.exec_module(module)
    return module


def _check_rewards(name: str, task: Task) -> None:
    for reward in task.hooks("reward"):
        runtime = inspect.signature(reward).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            raise ValueError(f"{name}: reward {reward.__name__!r} needs a runtime: compute it from the trace alone")


def _trace(task: Task, prompt: list[dict[str, str]], completion: str) -> Any:
    """The trace of a rollout with one answer: the prompt and the model's message."""
    vf = importlib.import_module("verifiers.v1")
    roles = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
    nodes = [
        vf.MessageNode(parent=at - 1 if at else None, message=roles[message["role"]](content=message["content"]))
        for at, message in enumerate(prompt)
    ]
    answer = vf.AssistantMessage(content=completion)
    nodes.append(vf.MessageNode(parent=len(prompt) - 1, message=answer, sampled=True))
    about = vf.TraceTask(type=type(task).__name__, data=task.data)
    return vf.Trace(task=about, agent=vf.AgentInfo(config=vf.AgentConfig()), nodes=nodes, is_completed=True, ok=True)


def main() -> None:
    asked, out = _pipes()
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text(str(FIRST_TO_GO))
    runner, last = asyncio.Runner(), False
    while not last and (line := asked.readline()):
        try:
            for reply in _replies(runner, json.loads(line)):
                _say(out, reply)
        except ValueError as wrong:
            _say(out, {"wrong": str(wrong)})
        except BaseException as wrong:  # noqa: BLE001 (an exit, say, after which the loop is no good)
            _say(out, {"wrong": f"{type(wrong).__name__}: {wrong}", "last": (last := True)})
    os._exit(0)  # without waiting for threads that a reward has left


def _pipes() -> tuple[TextIO, TextIO]:
    """Standard input and output, hidden from a taskset and from the processes that it starts."""
    asked, out = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    for pipe in (asked, out):
        os.register_at_fork(after_in_child=partial(os.close, pipe.fileno()))
    return asked, out


def _say(out: TextIO, reply: dict[str, Any]) -> None:
    out.write(json.dumps(reply) + "\n")
    out.flush()


def _replies(runner: asyncio.Runner, told: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with _within(told["load_seconds"]):
        scorer = _scorer(Path(told["taskset"]), Path(told["pool"]), told["ids"])
    if "places" in told:
        yield {"prompts": [scorer.prompt(place) for place in told["places"]]}
    for place, completion in told.get("answered", ()):
        with _within(told["seconds"]):
            reward = runner.run(scorer.reward(place, completion))
        yield {"reward": reward}


def _scorer(taskset: Path, pool: Path, ids: Sequence[str]) -> Scorer:
    try:
        return _made(taskset, _digest(taskset), pool, _digest(pool), tuple(ids))
    except OSError as wrong:
        raise ValueError(f"{taskset.name} cannot be used ({wrong})") from wrong


@lru_cache(maxsize=4)
def _made(taskset: Path, digest: str, pool: Path, content: str, ids: tuple[str, ...]) -> Scorer:
    """Made once per content: several judgements share a pool."""
    return Scorer(taskset, pool, ids)


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """End this process after `seconds`. Needs no interpreter, which a reward may block."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
