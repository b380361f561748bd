"""Reversing a text, as a verifiers taskset: the answer is the text from its end to its beginning, in tags.

Read from a JSONL file: {"id": "...", "question": "tano bo", "answer": "ob onat"}, a text to a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import verifiers.v1 as vf

__all__ = ["Chat", "Questions"]

OPEN, CLOSE = "<reversed_text>", "</reversed_text>"
ASKED = f"Reverse the text, character by character. Give the result in {OPEN} tags."


def tagged(reply: str) -> str | None:
    """What stands in the last pair of tags, without spaces around it; None where there is no such pair."""
    _, tag, rest = reply.rpartition(OPEN)
    inside, end, _ = rest.partition(CLOSE)
    return inside.strip() if tag and end else None


def is_right(reply: str, answer: str) -> bool:
    """Whether the tagged text of a reply is the answer, sign for sign."""
    return tagged(reply) == answer


class Data(vf.TaskData):
    """A text and its reverse."""

    answer: str


class Question(vf.Task[Data]):
    """One text."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(is_right(trace.last_reply, self.data.answer))


class Config(vf.TasksetConfig):
    """Where the texts are."""

    path: str = ""


class Questions(vf.Taskset[Question, Config]):
    """The texts of one file, in its order."""

    def load(self) -> Iterator[Question]:
        with Path(self.config.path).open() as lines:
            for row in map(json.loads, lines):
                prompt, answer = row["question"], row["answer"]
                data = Data(id=row["id"], prompt=prompt, system_prompt=ASKED, answer=answer)
                yield Question(data, self.config.task)


class Chat(vf.Harness[vf.HarnessConfig]):
    """Asks once, from within the process: a program for each answer would cost more than the answer."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: vf.ModelContext, trace: vf.Trace, runtime: vf.Runtime, endpoint: str, secret: str,
        mcp_urls: dict[str, str], data: vf.TaskData,
    ) -> vf.ProgramResult:  # fmt: skip
        system, prompt = self.resolve_prompt(data)
        said = [("system", system)] if system else []
        messages = [{"role": role, "content": text} for role, text in [*said, ("user", prompt)]]
        async with httpx.AsyncClient(timeout=None, verify=False, trust_env=False) as client:  # loopback alone
            reply = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        return vf.ProgramResult(0 if reply.is_success else 1, "", "" if reply.is_success else reply.text)
