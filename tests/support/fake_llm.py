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
    delay: float = 0.0
    """Seconds before anything is sent; infinite for a server that hangs."""
    finish: str = "stop"
    usage: tuple[int, int] | None = USAGE
    """Input and output tokens; None when the server does not count."""
    refusal: str = ""
    """What the model says in place of an answer."""
    thoughts: str = ""
    """What a reasoning model tells apart from its answer, as `reasoning_content`."""
    called: str = ""
    """The name of a tool that it calls."""
    body: str | None = None
    """Sent as it is, in place of a completion or an error."""
    pause: float = 0.0
    """Seconds between one byte of the body and the next."""
    cut: bool = False
    """Whether the connection is closed without an answer."""


def truncated(text: str) -> Reply:
    """An answer that ended at the limit of output tokens."""
    return Reply(text, finish="length")


def rate_limited(retry_after: str | None = "0") -> Reply:
    """429, with the header Retry-After unless it is None."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Reply("Rate limit reached", status=429, headers=headers)


def broken(status: int = 500) -> Reply:
    return Reply("The server had an error", status=status)


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
        self._lock, self._over = threading.Lock(), threading.Event()
        self.requests: list[Asked] = []
        """What came to `/v1/chat/completions`."""
        self.probes: list[Asked] = []
        """What came to `/v1/models`."""

    def __enter__(self) -> Self:
        self._serving = serving(_Handler, fake=self)
        self.url = f"{self._serving.__enter__()}/v1"
        """The base URL."""
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._over.set()
        self._serving.__exit__(None, None, None)
        if error is None and not callable(self._script) and self._taken > len(self._script):
            raise AssertionError(f"{self._taken} requests came, the script has {len(self._script)} replies")

    def reply_to(self, asked: Asked) -> Reply:
        with self._lock:
            {"/v1/chat/completions": self.requests, "/v1/models": self.probes}.get(asked.path, []).append(asked)
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

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the server is closed; whether it is."""
        return self._over.wait(min(seconds, threading.TIMEOUT_MAX)) if seconds else self._over.is_set()


class _Handler(Handler):
    fake: FakeLLM

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.path, headers, json.loads(self.body() or b"{}"))
        reply = self.fake.reply_to(asked)
        is_over = self.fake.wait(reply.delay)
        if reply.cut or (reply.delay and is_over):
            return
        content, pause = _body(reply, asked).encode(), reply.pause
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **reply.headers}
        # Whoever asked need not have waited for the answer.
        with contextlib.suppress(OSError):
            self.send_response(reply.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            step = 1 if pause else len(content)
            for at in range(0, len(content), step):
                self.wfile.write(content[at : at + step])
                self.fake.wait(pause)

    do_POST = do_GET


def _body(reply: Reply, asked: Asked) -> str:
    if reply.body is not None:
        return reply.body
    if reply.status >= 400:
        return json.dumps({"error": {"message": reply.text, "type": "error", "code": None}})
    message: dict[str, Any] = {"role": "assistant", "content": None if reply.refusal else reply.text}
    if reply.refusal:
        message["refusal"] = reply.refusal
    if reply.thoughts:
        message["reasoning_content"] = reply.thoughts
    if reply.called:
        call = {"name": reply.called, "arguments": "{}"}
        message["tool_calls"] = [{"id": "call-1", "type": "function", "function": call}]
    answer: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": asked.body.get("model", "test"),
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
    }
    if reply.usage is not None:
        given, got = reply.usage
        answer["usage"] = {"prompt_tokens": given, "completion_tokens": got, "total_tokens": given + got}
    return json.dumps(answer)
