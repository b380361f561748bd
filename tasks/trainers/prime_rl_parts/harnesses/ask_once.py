"""A verifiers harness for single-turn questions, and the taskset that asks them. They run in prime-rl's processes, with
its Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import taskset  # the environment's own, in the workspace
import verifiers.v1 as vf

__all__ = ["AskOnce", "Asked"]


class AskOnce(vf.Harness[vf.HarnessConfig]):
    """Asks once, in-process: a program per answer would cost more than the answer."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: vf.ModelContext, trace: vf.Trace, runtime: vf.Runtime, endpoint: str, secret: str,
        mcp_urls: dict[str, str], data: vf.TaskData,
    ) -> vf.ProgramResult:  # fmt: skip
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message.model_dump(exclude_none=True) for message in prompt]
        async with httpx.AsyncClient(timeout=None, verify=False, trust_env=False) as client:  # loopback alone
            reply = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        return vf.ProgramResult(0 if reply.is_success else 1, "", "" if reply.is_success else reply.text)


class Data(vf.TaskData):
    """A question, its answer, and what its line holds besides."""

    question: str
    answer: str
    further: dict[str, Any]


class Question(vf.Task[Data]):
    """One question, paid for by the taskset's function."""

    @vf.reward(weight=1.0)
    async def earned(self, trace: vf.Trace) -> float:
        data = self.data
        return float(taskset.reward(data.question, trace.last_reply, data.answer, **data.further))


class Config(vf.TasksetConfig):
    """The file with the questions."""

    path: str = ""


class Questions(vf.Taskset[Question, Config]):
    """The questions of one file, in its order, as the text judge asks them."""

    def load(self) -> Iterator[Question]:
        ask = getattr(taskset, "prompt", lambda question: question)
        with Path(self.config.path).open("rb") as lines:
            for row in map(json.loads, lines):
                further = {key: value for key, value in row.items() if key not in ("id", "question", "answer")}
                question, answer = row["question"], str(row["answer"])
                data = Data(id=row["id"], prompt=ask(question), question=question, answer=answer, further=further)
                yield Question(data, self.config.task)


exported = [getattr(taskset, name) for name in getattr(taskset, "__all__", ())]
Asked = next((one for one in exported if isinstance(one, type) and issubclass(one, vf.Taskset)), Questions)
"""The taskset's own class, where it is one of verifiers and no plain functions."""
