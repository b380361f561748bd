"""A scripted language model for the programs Claude Code and Codex: a generator that asks for tools, over their protocols.

def steps() -> Steps:
    output = yield "ls"          # what the command printed, as Codex tells it; Claude is asked by a name and what is given
    return f"done: {output}"     # the last message

with CodexModel(steps()) as model: ...
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

from tests.support.web import Handler, serving

Steps = Generator[Any, str, str]


class ScriptedModel:
    """An endpoint on a free port of the loopback interface, from `with` on.

    `steps` yields what the model asks for, is sent what came of it, and returns its last message.
    """

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.requests: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._serving = serving(_Handler, model=self)
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)

    def answer(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of the answer to one request."""
        raise NotImplementedError


class _Handler(Handler):
    model: ScriptedModel

    def do_POST(self) -> None:
        asked = json.loads(self.body())
        if "count_tokens" in self.path:
            self.answer(200, b'{"input_tokens": 10}', Content_Type="application/json")
            return
        events = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in self.model.answer(asked)]
        self.answer(200, "".join(events).encode(), Content_Type="text/event-stream")

    def do_GET(self) -> None:
        self.answer(200, b"{}", Content_Type="application/json")

    do_HEAD = do_GET


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


class CodexModel(ScriptedModel):
    @property
    def settings(self) -> str:
        """Codex's config.toml."""
        return (
            'model = "scripted"\nmodel_provider = "here"\n[model_providers.here]\nname = "here"\n'
            f'base_url = "{self.url}/v1"\nwire_api = "responses"\n'
        )

    def at_home(self, home: Path) -> Path:
        """A home of Codex's that has these settings and nothing else."""
        home.mkdir(parents=True)
        (home / "config.toml").write_text(self.settings)
        return home

    def answer(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        number = len(self.requests)
        self.requests.append(asked)
        outputs = [one["output"] for one in asked["input"] if one["type"] == "function_call_output"]
        try:
            command = self.steps.send(str(outputs[-1])) if outputs else next(self.steps)
            arguments = json.dumps({"cmd": command, "yield_time_ms": 30_000, "max_output_tokens": 20_000})
            item = {"type": "function_call", "call_id": f"c{number}", "name": "exec_command", "arguments": arguments}
        except (StopIteration, ValueError, KeyError, AssertionError) as over:  # an output that it did not expect
            said = over.value if isinstance(over, StopIteration) else f"I give up: {over!r}"
            content = [{"type": "output_text", "text": said}]
            item = {"type": "message", "role": "assistant", "id": f"m{number}", "content": content}
        counts = {"input_tokens": 10, "input_tokens_details": None, "output_tokens": 5, "output_tokens_details": None}
        response = {"id": f"r{number}", "usage": {**counts, "total_tokens": 15}}
        return [
            {"type": "response.created", "response": {"id": response["id"]}},
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": response},
        ]
