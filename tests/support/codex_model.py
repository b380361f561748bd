"""A language model for the program Codex: a generator that asks for shell commands, over OpenAI's protocol of responses.

def steps() -> Steps:
    output = yield "ls"          # what the command printed, as Codex tells it
    return f"done: {output}"     # the last message

with CodexModel(steps()) as model:
    subprocess.run(model.command(codex, "the task"), ...)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tests.support.scripted_model import ScriptedModel

Steps = Generator[str, str, str]


def codex() -> str | None:
    """The program, where it is installed."""
    return shutil.which("codex")


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
