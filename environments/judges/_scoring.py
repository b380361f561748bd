"""Scoring completions with a verifiers taskset: its `Task.score`, on a trace of two turns that is built here.

The module is loaded from a file by its path and trusted as the judge is. It needs no harness, no runtime and no
network; a reward that asks for a runtime cannot be had here. Importing verifiers takes some seconds, once per process.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

Task = Any  # vf.Task: verifiers is not typed
REWARD_SECONDS = 30.0
"""How long a reward may wait for something; nothing here can interrupt one that computes."""


class Scorer:
    """The tasks of one pool, each with the questions' answers."""

    def __init__(self, taskset: Path, pool: Path, ids: Sequence[str]) -> None:
        """
        Args:
            taskset: a module that exports one taskset, whose config has a `path`.
            pool: the file of questions that it is given as `path`.
            ids: of the questions in that file, in its order.

        Raises:
            ValueError: it is no such module, or it makes other tasks of the file.
        """
        try:
            self._tasks = list(_taskset(taskset, pool))
        except Exception as wrong:  # whatever a foreign module raises
            raise ValueError(f"{taskset.name} cannot be used ({type(wrong).__name__}: {wrong})") from wrong
        own = [task.data.id for task in self._tasks]
        if len(own) != len(ids) or any(
            name not in (None, given) for name, given in zip(own, ids, strict=True)
        ):
            raise ValueError(
                f"{taskset.name} makes {len(own)} tasks of the {len(ids)} questions in {pool.name}, or in another "
                "order: it must make one of each line"
            )
        for task in self._tasks[:1]:
            _check_rewards(taskset.name, task)
        self._ids = ids
        self._known: dict[tuple[int, str], float] = {}

    def prompt(self, place: int) -> list[dict[str, str]]:
        """What is asked in the line of that number, as the messages of a chat.

        Raises:
            ValueError: it is not made of text.
        """
        data = self._tasks[place].data
        system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        if isinstance(data.prompt, str):
            return [*system, {"role": "user", "content": data.prompt}]
        messages = [message.model_dump(exclude_none=True) for message in data.prompt or []]
        if not messages or any(not isinstance(message.get("content"), str) for message in messages):
            raise ValueError(
                f"question {self._ids[place]} is not asked in text: a text judge asks in text alone"
            )
        return [*system, *messages]

    def rewards(self, answered: Iterable[tuple[int, str]]) -> list[float]:
        """The reward of each completion of the question in that line, in their order; equal ones are scored once.

        Raises:
            ValueError: a reward cannot be computed, or is not finite.
        """
        asked = list(answered)
        with ThreadPoolExecutor(1) as thread:  # whoever calls may run in a loop of its own
            thread.submit(
                asyncio.run, self._score([pair for pair in asked if pair not in self._known])
            ).result()
        return [self._known[pair] for pair in asked]

    async def _score(self, pairs: Iterable[tuple[int, str]]) -> None:
        for place, completion in dict.fromkeys(pairs):
            task = self._tasks[place]
            trace = _trace(task, self.prompt(place), completion)
            try:
                await asyncio.wait_for(task.score(trace), REWARD_SECONDS)
            except Exception as wrong:  # whatever a foreign reward raises
                fault = f"{type(wrong).__name__}: {wrong}"
                raise ValueError(f"the reward of question {self._ids[place]} failed ({fault})") from wrong
            if not trace.rewards or None in trace.rewards.values() or not math.isfinite(trace.reward):
                given = trace.reward if trace.rewards else "none"
                raise ValueError(f"the reward of question {self._ids[place]} is {given}, not a finite number")
            self._known[place, completion] = trace.reward


def _taskset(file: Path, pool: Path) -> Iterable[Task]:
    vf, generic = (importlib.import_module(f"verifiers.v1{part}") for part in ("", ".utils.generic"))
    module = _module(file, hashlib.sha256(file.read_bytes()).hexdigest()[:16])
    exported = [getattr(module, name) for name in getattr(module, "__all__", ())]
    found = [thing for thing in exported if isinstance(thing, type) and issubclass(thing, vf.Taskset)]
    if len(found) != 1:
        raise TypeError(f"it exports {len(found)} subclasses of vf.Taskset in __all__, not one")
    config = generic.concrete_type(found[0], vf.TasksetConfig, origin=vf.Taskset) or vf.TasksetConfig
    tasks: Iterable[Task] = found[0](config(path=str(pool)))
    return tasks


@lru_cache(maxsize=8)
def _module(file: Path, digest: str) -> ModuleType:
    """The module in a file, run once for each content."""
    name = f"nightshift_taskset_{digest}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, f"{file} is no Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its annotations are looked up
    spec.loader.exec_module(module)
    return module


def _check_rewards(name: str, task: Task) -> None:
    for reward in task.hooks("reward"):
        runtime = inspect.signature(reward).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            raise ValueError(
                f"{name}: reward {reward.__name__!r} needs a runtime: compute it from the trace alone"
            )


def _trace(task: Task, prompt: list[dict[str, str]], completion: str) -> Any:
    """What a rollout of one answer leaves: the messages that were sent, and the model's."""
    vf = importlib.import_module("verifiers.v1")
    roles = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
    nodes = [
        vf.MessageNode(
            parent=at - 1 if at else None, message=roles[message["role"]](content=message["content"])
        )
        for at, message in enumerate(prompt)
    ]
    answer = vf.AssistantMessage(content=completion)
    nodes.append(vf.MessageNode(parent=len(prompt) - 1, message=answer, sampled=True))
    about = vf.TraceTask(type=type(task).__name__, data=task.data)
    return vf.Trace(
        task=about, agent=vf.AgentInfo(config=vf.AgentConfig()), nodes=nodes, is_completed=True, ok=True
    )
