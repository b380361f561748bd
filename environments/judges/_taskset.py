"""The taskset of a text judge, in a process of its own that asks its questions and scores answers.

It is a module with a function `reward(question, completion, answer)`, and one `prompt(question)` if it likes, or with a
verifiers taskset, whose `Task.score` gets a trace of two turns: no harness, no runtime, no network. It is trusted as
the judge is. A reward that never ends, or ends its process, gives no score.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from environments.judges import Misbehaved
from environments.judges._process import ForeignProcess, ProcessLost
from environments.score import LARGEST

LOAD_SECONDS = 300.0
"""How long a taskset may take to load, with verifiers, on a busy machine."""

Prompt = list[dict[str, str]]
"""Chat messages."""
Task = tuple[Prompt, Callable[[str], float | None]]
"""A question's prompt, and the reward of a completion; None where none is given."""
ASKED = ("id", "question", "answer")
"""The keys of a question's line that are not given to a reward by name."""


class Taskset(ForeignProcess):
    """The questions of one pool, and the rewards of their completions, for as long as the block runs."""

    def __init__(
        self, file: Path, pool: Path, ids: Sequence[str], seconds: float, ends: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`file`: the module; `pool`: its questions, with these `ids` in order; `seconds`: of one reward; `ends`: the
        total deadline, on the monotonic clock.
        """
        super().__init__(None, LOAD_SECONDS, check, "taskset")
        self._file, self._pool, self._ids, self._each, self._ends = file, pool, list(ids), seconds, ends

    def prompts(self, lines: Sequence[int]) -> list[Prompt]:
        """Load the taskset; the prompts of the questions in those lines.

        Raises Misbehaved: the file has no taskset of these questions, or one is not asked in text.
        """
        try:
            self.call(_Tasks, self._file, self._pool, self._ids)
        except Misbehaved as wrong:
            raise Misbehaved(f"{self._file.name} cannot be used ({wrong})") from wrong
        return self.call(_Tasks.prompts, list(lines))

    def reward(self, line: int, completion: str) -> float:
        """The reward of a completion of the question in that line. Raises Misbehaved: it cannot be computed, takes too
        long, or is not finite.
        """
        which = f"the reward of question {self._ids[line]}"
        if (left := self._ends - time.monotonic()) <= 0:
            raise Misbehaved(f"{which}: out of time")
        try:
            reward = self.call(_Tasks.reward, line, completion, seconds=min(self._each, left))
        except ProcessLost as lost:
            raise Misbehaved(f"{which}: {lost}: have it end, or raise [text] reward_seconds") from lost
        except Misbehaved as failed:
            raise Misbehaved(f"{which} failed ({failed})") from failed
        if reward is None or not abs(reward) <= LARGEST:  # comparisons with NaN are false
            raise Misbehaved(f"{which} is {reward}, not a finite number up to {LARGEST:g}")
        return reward


class _Tasks:
    """The tasks of a pool, in their process."""

    def __init__(self, file: Path, pool: Path, ids: Sequence[str]) -> None:
        """Raises whatever a foreign module raises, and Misbehaved where it makes other tasks of the pool."""
        spec = importlib.util.spec_from_file_location("nightshift_taskset", file)
        assert spec is not None and spec.loader is not None, f"{file} is no Python file"
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # annotations are looked up there
        spec.loader.exec_module(module)
        exported = [getattr(module, name) for name in getattr(module, "__all__", ())]
        has_classes = any(isinstance(thing, type) for thing in exported)
        self._tasks = list(_verified(spec.name, pool, ids) if has_classes else _declared(module, pool))

    def prompts(self, lines: Sequence[int]) -> list[Prompt]:
        return [self._tasks[line][0] for line in lines]

    def reward(self, line: int, completion: str) -> float | None:
        """The reward of a completion. Raises whatever a foreign reward raises."""
        reward = self._tasks[line][1](completion)
        return None if reward is None else float(reward)


def _declared(module: ModuleType, pool: Path) -> Iterator[Task]:
    """A task for each line of a pool, by the module's functions."""
    prompt = getattr(module, "prompt", lambda question: [{"role": "user", "content": question}])
    for row in map(json.loads, pool.read_text("utf-8").removesuffix("\n").split("\n")):
        question, answer = row["question"], str(row["answer"])
        further = {key: value for key, value in row.items() if key not in ASKED}
        yield prompt(question), partial(module.reward, question, answer=answer, **further)


def _verified(name: str, pool: Path, ids: Sequence[str]) -> Iterator[Task]:
    """A task for each line of a pool, by the verifiers taskset of an imported module."""
    vf = importlib.import_module("verifiers.v1")
    tasks = list(vf.load_taskset(vf.taskset_config_type(name)(id=name, path=str(pool))))
    if len(tasks) != len(ids) or any(task.data.id not in (None, id) for task, id in zip(tasks, ids, strict=True)):
        raise Misbehaved(f"it makes {len(tasks)} tasks of the {len(ids)} questions, or in another order")
    runner = asyncio.Runner()
    for task in tasks:
        prompt = _prompt(task.data)
        yield prompt, partial(_verified_reward, vf, runner, task, prompt)


def _prompt(data: Any) -> Prompt:
    system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return [*system, {"role": "user", "content": data.prompt}]
    messages = [message.model_dump(exclude_none=True) for message in data.prompt or []]
    if not messages or any(not isinstance(message.get("content"), str) for message in messages):
        raise Misbehaved(f"question {data.id} is not asked in text: a text judge asks in text alone")
    return [*system, *messages]


def _verified_reward(vf: Any, runner: asyncio.Runner, task: Any, prompt: Prompt, completion: str) -> float | None:
    said = [*prompt, {"role": "assistant", "content": completion}]
    nodes = [
        vf.MessageNode(parent=at - 1 if at else None, message=message, sampled=at == len(prompt))
        for at, message in enumerate(said)
    ]
    about = vf.TraceTask(type=type(task).__name__, data=task.data)
    agent = vf.AgentInfo(config=vf.AgentConfig())
    trace = vf.Trace(task=about, agent=agent, nodes=nodes, is_completed=True, ok=True)
    runner.run(task.score(trace))
    return None if not trace.rewards or None in trace.rewards.values() else float(trace.reward)
