"""An endpoint that trains: the questions of the protocol, each repeated until it is answered.

A trial is named by a key that the engine chooses. To start a key twice starts nothing, and to delete one that is gone
is no error; so every question can be repeated after a lost answer. docs/other-machines.md describes the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.redact import capped, clean

if TYPE_CHECKING:
    import ssl

    import httpx

PROTOCOL = 1
CONNECT_SECONDS = 5.0
ANSWER_BYTES = 2**20
"""Most bytes of an answer, files and progress aside."""
LIST_BYTES = 16 * 2**20
"""Most bytes of the list of files."""
PROGRESS_BYTES = 2**20
"""Most bytes of progress that are read at a time."""
LOG_BYTES = 64 * 2**10
PAUSES = (0.1, 0.3, 1.0, 2.0, 5.0)
"""Seconds before a question is asked again; the last from then on."""
LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses of an endpoint, or a proxy before it, that may answer later."""
WRONG = frozenset({400, 413, 415, 422})
"""HTTP statuses that refuse a trial for what it is."""
GONE = frozenset({404, 410})

T = TypeVar("T")


class EndpointAway(Exception):
    """There was no answer for longer than is waited; the trial there may run on."""


class Gone(Exception):
    """The endpoint does not know this trial, or no longer."""


class TrialRefused(Exception):
    """The endpoint does not take this trial, and would not take it later; the message is its reason."""


class EndpointFault(Exception):
    """The endpoint answers, but not as the protocol says, or it does not accept the login."""


class Status(BaseModel):
    """The state of a trial."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    state: Literal["queued", "running", "finished", "failed"]
    seconds: float = Field(default=0, ge=0)
    """Seconds of training so far, from ready on, by the endpoint's clock."""
    error: str = ""
    """Why it failed."""
    retry: bool = False
    """Whether the machine was at fault, so that another try may succeed."""
    usd: float | None = Field(default=None, ge=0, le=1e6)
    """What it has cost so far; None if the endpoint does not say."""

    @property
    def is_over(self) -> bool:
        return self.state in ("finished", "failed")


class RemoteFile(BaseModel):
    """A file that a trial has left."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str = Field(max_length=4096)
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


FILES = TypeAdapter(tuple[RemoteFile, ...])


@dataclass(frozen=True)
class Address:
    """Where an endpoint is, and what proves who asks."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def shown(self) -> str:
        return self.url.rstrip("/")


class RemoteEndpoint:
    """The questions to one endpoint. As a `with` block its connections are closed at the end.

    Every question raises EndpointAway, Gone, EndpointFault, or what `pause` raises.
    """

    def __init__(
        self, address: Address, away_seconds: float, answer_seconds: float,
        pause: Callable[[float], None] = interrupt.wait,
    ) -> None:  # fmt: skip
        """An endpoint that may be away for a while.

        Args:
            answer_seconds: Longest wait for an answer, until the question is asked again.
            pause: Waits between two tries; the default raises KeyboardInterrupt when this process is to end.
        """
        import httpx

        self.address, self._away, self._answer, self._pause = address, away_seconds, answer_seconds, pause
        # Nothing is compressed, so that no answer grows when it is read; and no login follows a redirection.
        self._client = httpx.Client(
            headers={"Accept-Encoding": "identity", **address.headers},
            timeout=httpx.Timeout(answer_seconds, connect=min(answer_seconds, CONNECT_SECONDS)),
            follow_redirects=False,
            verify=_authorities(),
        )

    def __enter__(self) -> RemoteEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def check(self) -> None:
        """Ask whether it answers, speaks this protocol and accepts the login."""
        version = _json(self._ask("GET", "/")).get("protocol")
        if version != PROTOCOL:
            raise EndpointFault(f"{self.address.shown} speaks protocol {version!r}, and this Nightshift {PROTOCOL}")

    def start(self, key: str, request: bytes) -> Status:
        """Start a trial unless this key was started before. Raises TrialRefused besides."""
        return _status(self._ask("POST", "/trials", content=request, headers={"Idempotency-Key": key}))

    def status(self, key: str) -> Status:
        return _status(self._ask("GET", _path(key)))

    def progress(self, key: str, offset: int, seconds: float) -> bytes:
        """The lines of progress.jsonl from a byte on; waits up to `seconds` for new ones where the endpoint does.

        It may hold the answer open and send lines as they come: those of `seconds` are read.
        """
        import httpx

        def read() -> bytes:
            held, deadline = bytearray(), clock() + seconds
            parts = {"from": str(offset), "wait": f"{seconds:g}"}
            patience = httpx.Timeout(self._answer, connect=CONNECT_SECONDS, read=seconds + self._answer)
            with self._client.stream("GET", self._url(f"{_path(key)}/progress"), params=parts, timeout=patience) as got:
                _check(got)
                try:
                    for chunk in got.iter_raw():
                        held += chunk
                        if len(held) >= PROGRESS_BYTES or clock() >= deadline:
                            break
                except httpx.TransportError:
                    if not held:  # what came before a cut counts: the next question goes on behind it
                        raise
            return bytes(held[:PROGRESS_BYTES])

        return self._answered(read)

    def stop(self, key: str) -> None:
        """Have a trial end now, with a checkpoint, as SIGTERM does."""
        self._ask("POST", f"{_path(key)}/stop")

    def delete(self, key: str) -> None:
        """End a trial and remove all that it has left there; no error where nothing is."""
        try:
            self._ask("DELETE", _path(key))
        except Gone:
            return

    def files(self, key: str) -> tuple[RemoteFile, ...]:
        """What a finished trial has left in its out/."""
        try:
            return FILES.validate_json(self._ask("GET", f"{_path(key)}/files", most=LIST_BYTES))
        except ValidationError as wrong:
            raise EndpointFault(f"{self.address.shown} lists files in another form: {_first(wrong)}") from wrong

    def download(
        self, key: str, path: str, held: Callable[[], int], take: Callable[[int, Iterator[bytes]], None]
    ) -> None:
        """Hand the content of a file to `take`: the byte with which it begins, and its chunks.

        `held` tells how many bytes are there, so that a download that was cut goes on behind them.
        """

        def read() -> None:
            offset = held()
            wanted = {"Range": f"bytes={offset}-"} if offset else {}
            with self._client.stream("GET", self._url(f"{_path(key)}/files/{quote(path)}"), headers=wanted) as got:
                _check(got)
                take(offset if got.status_code == 206 else 0, got.iter_raw())

        self._answered(read)

    def log(self, key: str) -> bytes:
        """The end of what a trial has printed; empty where the endpoint keeps no log."""
        try:
            return self._ask("GET", f"{_path(key)}/log", most=LOG_BYTES)
        except (Gone, TrialRefused, EndpointFault):
            return b""

    def _ask(
        self, method: str, path: str, content: bytes = b"", headers: Mapping[str, str] | None = None,
        most: int = ANSWER_BYTES,
    ) -> bytes:  # fmt: skip
        def read() -> bytes:
            held = bytearray()
            kind = {"Content-Type": "application/json"} if content else {}
            with self._client.stream(
                method, self._url(path), content=content, headers={**kind, **(headers or {})}
            ) as got:
                for chunk in got.iter_raw():
                    held += chunk
                    if len(held) > most:
                        raise EndpointFault(f"{self.address.shown} answers with more than {most:,} bytes")
                _check(got, bytes(held))
            return bytes(held)

        return self._answered(read)

    def _url(self, path: str) -> str:
        return self.address.url.rstrip("/") + path

    def _answered(self, ask: Callable[[], T]) -> T:
        """Ask until there is an answer. Raises EndpointAway after `away_seconds` without one."""
        import httpx

        began, tries = clock(), 0
        while True:
            try:
                return ask()
            except (httpx.TransportError, httpx.DecodingError, Later) as fault:
                if clock() - began > self._away:
                    words = f"{self.address.shown} did not answer for {self._away:g} s ({_words(fault)})"
                    raise EndpointAway(words) from fault
            self._pause(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1


class Later(Exception):
    """An answer that says that the endpoint may answer later."""


def _check(got: httpx.Response, content: bytes = b"") -> None:
    """Raise what the status of an answer stands for."""
    code = got.status_code
    if 200 <= code < 300:
        return
    said = capped(" ".join(clean(content.decode(errors="replace"))), 500)
    words = f"HTTP {code}{': ' * bool(said)}{said}"
    if code in LATER:
        raise Later(words)
    if code in GONE:
        raise Gone(words)
    if code in WRONG:
        raise TrialRefused(words)
    login = ": see the login in its block" if code in (401, 403) else ""
    raise EndpointFault(f"{got.request.url.host} answers {words}{login}")


@cache
def _authorities() -> ssl.SSLContext:
    """The certificate authorities, which take a tenth of a second to read."""
    import httpx

    return httpx.create_ssl_context()


def _path(key: str) -> str:
    return f"/trials/{quote(key, safe='')}"


def _json(content: bytes) -> dict[str, object]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise EndpointFault(f"an answer is no JSON object: {content[:80].decode(errors='replace')!r}")
    return found


def _status(content: bytes) -> Status:
    try:
        return Status.model_validate(_json(content))
    except ValidationError as wrong:
        raise EndpointFault(f"the state of a trial has another form: {_first(wrong)}") from wrong


def _first(wrong: ValidationError) -> str:
    fault = wrong.errors(include_input=False)[0]
    return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"


def _words(fault: Exception) -> str:
    return f"{type(fault).__name__}{': ' * bool(str(fault))}{capped(' '.join(clean(str(fault))), 200)}"
