"""The endpoint of a scripted language model, for programs that ask one over a stream of events."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Self

from tests.support.web import Handler, serving


class ScriptedModel:
    """An endpoint on a free port of the loopback interface, from `with` on.

    `steps` yields what the model asks for, is sent what came of it, and returns its last message.
    """

    def __init__(self, steps: Generator[Any, str, str]) -> None:
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
