"""A language model that says what its script says, over real HTTP: `/v1/chat/completions` and `/v1/models`.

    with FakeLLM(["first answer", Reply(status=500), Reply("second answer")]) as server:
        ...  # base_url=server.url, any model name, any key
        assert server.requests[0].last == "what was asked"

A script is a list of replies, one for each request in the order in which they come, or a function of the request. A
request beyond the end of a list is answered with 404, and leaving the `with` then fails.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.web import Handler, serving

USAGE = (100, 20)
"""Input and output tokens of an answer whose reply does not say."""


@dataclass(frozen=True)
class Reply:
    """What the server does with one request."""

    text: str = ""
    """The answer; with a status of 400 or more, the message of the error."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    finish: str = "stop"
    usage: tuple[int, int] = USAGE
    """Input and output tokens."""
    message: Mapping[str, Any] = field(default_factory=dict)
    """What the message of the answer has beside its text, or instead."""
    body: str | None = None
    """Sent as it is, in place of a completion or an error."""
    pause: float = 0.0
    """Seconds before anything is sent, and after each byte of the body; infinite for a server that hangs."""
    cut: bool = False
    """Whether the connection is closed without an answer."""


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    path: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: Mapping[str, Any]
    """Empty for GET."""

    @property
    def key(self) -> str:
        """The key that it was sent with."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def messages(self) -> list[dict[str, str]]:
        return list(self.body["messages"])

    @property
    def last(self) -> str:
        """The text of the last message."""
        return self.messages[-1]["content"]

    @property
    def prompt(self) -> str:
        """The texts of all messages."""
        return "\n\n".join(message["content"] for message in self.messages)


Script = Sequence[Reply | str] | Callable[[Asked], Reply | str]


class FakeLLM:
    """A scripted server on a free port of the loopback interface, from `with` on."""

    def __init__(self, script: Script = (), *, key: str | None = None) -> None:
        """`key`: the only one that is let in; None lets in everybody."""
        self._script, self._key = script, key
        self._taken = 0
        self._lock, self.over = threading.Lock(), threading.Event()
        self.requests: list[Asked] = []
        """What came to `/v1/chat/completions`."""

    def __enter__(self) -> Self:
        self._serving = serving(_Handler, fake=self)
        self.url = f"{self._serving.__enter__()}/v1"
        """The base URL."""
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.over.set()
        self._serving.__exit__(None, None, None)
        if error is None and not callable(self._script) and self._taken > len(self._script):
            raise AssertionError(f"{self._taken} requests came, the script has {len(self._script)} replies")

    def reply_to(self, asked: Asked) -> Reply:
        with self._lock:
            if asked.path == "/v1/chat/completions":
                self.requests.append(asked)
            if self._key not in (None, asked.key):
                return Reply("Incorrect API key provided", status=401)
            if asked.path == "/v1/models":
                return Reply(body=json.dumps({"object": "list", "data": [{"id": "test", "object": "model"}]}))
            if asked.path != "/v1/chat/completions":
                return Reply("no such path", status=404)
            self._taken += 1
            if callable(self._script):
                reply = self._script(asked)
            elif self._taken <= len(self._script):
                reply = self._script[self._taken - 1]
            else:
                reply = Reply("the script is over", status=404)
        return Reply(reply) if isinstance(reply, str) else reply


class _Handler(Handler):
    fake: FakeLLM

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.path, headers, json.loads(self.body() or b"{}"))
        reply = self.fake.reply_to(asked)
        if reply.cut or self.fake.over.wait(min(reply.pause, threading.TIMEOUT_MAX)):
            return
        content = _body(reply, asked).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **reply.headers}
        # Whoever asked need not have waited for the answer.
        with contextlib.suppress(OSError):
            self.send_response(reply.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            step = 1 if reply.pause else len(content)
            for at in range(0, len(content), step):
                self.wfile.write(content[at : at + step])
                self.fake.over.wait(reply.pause)

    do_POST = do_GET


def _body(reply: Reply, asked: Asked) -> str:
    if reply.body is not None:
        return reply.body
    if reply.status >= 400:
        return json.dumps({"error": {"message": reply.text, "type": "error", "code": None}})
    message = {"role": "assistant", "content": reply.text, **reply.message}
    given, got = reply.usage
    return json.dumps({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000,
        "model": asked.body.get("model", "test"),
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
        "usage": {"prompt_tokens": given, "completion_tokens": got, "total_tokens": given + got},
    })  # fmt: skip
