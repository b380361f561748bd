"""A receiver of notifications: a real webhook, which keeps what it is sent."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.web import Handler, serving


@dataclass
class Received:
    address: str
    messages: list[str] = field(default_factory=list)
    """The texts, in order."""


class _Hook(Handler):
    received: Received

    def do_POST(self) -> None:
        self.received.messages.append(json.loads(self.body())["text"])
        self.answer(200)


@contextlib.contextmanager
def webhook() -> Iterator[Received]:
    """A web server that takes `{"text": ...}`."""
    received = Received("")
    with serving(_Hook, received=received) as url:
        received.address = f"{url}/secret-path"
        yield received
