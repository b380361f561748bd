"""A language model for the program Claude Code: a generator that asks for tools, over Anthropic's protocol of messages.

def steps() -> Steps:
    output = yield "Edit", {"file_path": ..., "old_string": ..., "new_string": ...}    # what the tool said
    return "the last message"
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from typing import Any

from tests.support.scripted_model import ScriptedModel

Steps = Generator[tuple[str, dict[str, Any]], str, str]


def claude() -> str | None:
    """The program, where it is installed."""
    return shutil.which("claude")


class ClaudeModel(ScriptedModel):
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
