"""A language model for the program Claude Code: a generator that asks for tools, over Anthropic's protocol of messages.

def steps() -> Steps:
    output = yield "Edit", {"file_path": ..., "old_string": ..., "new_string": ...}    # what the tool said
    return "the last message"
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Generator
from typing import Any, Self

from tests.support.web import Handler, serving

Steps = Generator[tuple[str, dict[str, Any]], str, str]


def claude() -> str | None:
    """The program, where it is installed."""
    return shutil.which("claude")


class ClaudeModel:
    """The endpoint, on a free port of the loopback interface, from `with` on. `slow`: seconds before each answer."""

    def __init__(self, steps: Steps, slow: float = 0.0) -> None:
        self.steps, self.slow = steps, slow
        self.requests: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._serving = serving(_Handler, model=self)
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)

    @property
    def variables(self) -> dict[str, str]:
        """What Claude Code needs to know of it."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "scripted-key-0000"}

    def answer(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        if not asked.get("tools"):  # a title for the conversation, and the like
            return message({"type": "text", "text": "none"}, asked["model"], "end_turn")
        self.requests.append(asked)
        last = asked["messages"][-1]["content"]
        results = [one for one in last if isinstance(one, dict) and one.get("type") == "tool_result"]
        try:
            name, given = self.steps.send(json.dumps(results[-1]["content"])) if results else next(self.steps)
            call = {"type": "tool_use", "id": f"t{len(self.requests)}", "name": name, "input": given}
            return message(call, asked["model"], "tool_use")
        except (StopIteration, AssertionError) as over:
            said = str(over.value) if isinstance(over, StopIteration) else f"I give up: {over!r}"
            return message({"type": "text", "text": said}, asked["model"], "end_turn")


class _Handler(Handler):
    model: ClaudeModel

    def do_POST(self) -> None:
        asked = json.loads(self.body())
        if "count_tokens" in self.path:
            self.answer(200, b'{"input_tokens": 10}', Content_Type="application/json")
            return
        time.sleep(self.model.slow)
        events = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in self.model.answer(asked)]
        self.answer(200, "".join(events).encode(), Content_Type="text/event-stream")

    def do_GET(self) -> None:
        self.answer(200, b"{}", Content_Type="application/json")

    do_HEAD = do_GET


def message(block: dict[str, Any], model: str, reason: str) -> list[dict[str, Any]]:
    """The events of a message of one block."""
    usage = {"input_tokens": 1000, "output_tokens": 500}
    begun = {
        "id": "m", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    empty = {**block, "input": {}} if block["type"] == "tool_use" else {**block, "text": ""}
    if block["type"] == "tool_use":
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        delta = {"type": "text_delta", "text": block["text"]}
    return [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
