"""An endpoint that trains: the questions of the protocol, each repeated until it is answered.

A trial is named by a key that the engine chooses. To start a key twice starts nothing, and to delete one that is gone
is no error; so every question can be repeated after a lost answer. docs/other-machines.md describes the protocol.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Literal, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from environments.remote import Address
from tasks.system import interrupt
from tasks.system.redact import one_line
from tasks.system.retrying import PASSING, retrying

PROTOCOL = 1
CONNECT_SECONDS = 5.0
ANSWER_BYTES = 16 * 2**20
"""Most bytes of an answer besides files that are read; what is beyond is left."""
REFUSED, GONE = (400, 413, 415, 422), (404, 410)
"""HTTP statuses that refuse a trial for what it is, and of one that is not there."""
T = TypeVar("T")


class EndpointFault(Exception):
    """The endpoint does not work: another try may succeed."""


class EndpointAway(EndpointFault):
    """There was no answer for longer than is waited; the trial there may run on."""


class TrialFault(Exception):
    """The endpoint refuses the trial, or what it left cannot be kept: a crash with this reason."""


class Status(BaseModel, frozen=True, allow_inf_nan=False):
    """The state of a trial."""

    state: Literal["queued", "running", "finished", "failed"]
    seconds: float = Field(default=0, ge=0)
    """Seconds of training so far, from ready on, by the endpoint's clock."""
    error: str = ""
    """Why it failed."""
    retry: bool = False
    """Whether the machine was at fault, so that another try may succeed."""

    @property
    def is_over(self) -> bool:
        return self.state in ("finished", "failed")


class RemoteFile(BaseModel, frozen=True):
    """A file that a trial has left."""

    path: str = Field(pattern=r"^[^\x00]+$", max_length=4096)
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


FILES, STATUS, OBJECT = TypeAdapter(tuple[RemoteFile, ...]), TypeAdapter(Status), TypeAdapter(dict[str, Any])


class RemoteEndpoint(AbstractContextManager["RemoteEndpoint"]):
    """The questions to one endpoint. As a `with` block its connections are closed at the end.

    Every question is asked again until it is answered, and raises EndpointAway after `away_seconds` without an answer,
    EndpointFault, or what `pause` raises: the default KeyboardInterrupt when this process is to end.
    """

    def __init__(
        self, address: Address, away_seconds: float, answer_seconds: float,
        pause: Callable[[float], None] = interrupt.wait,
    ) -> None:  # fmt: skip
        self.url, self._away, self._pause = address.url.rstrip("/"), away_seconds, pause
        login = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        # Nothing is compressed, so that no answer grows when it is read; and no login follows a redirection.
        self._client = httpx.Client(
            headers={"Accept-Encoding": "identity", **login},
            timeout=httpx.Timeout(answer_seconds, connect=min(answer_seconds, CONNECT_SECONDS)),
        )

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def check(self) -> None:
        """Ask whether it answers, speaks this protocol and accepts the login."""
        version = self._parsed(OBJECT, self._ask("GET", "/")).get("protocol")
        if version != PROTOCOL:
            raise EndpointFault(f"{self.url} speaks protocol {version!r}, and this Nightshift {PROTOCOL}")

    def start(self, key: str, request: bytes) -> Status:
        """Start a trial unless this key was started before. Raises TrialFault besides."""
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        return self._parsed(STATUS, self._ask("POST", "/trials", content=request, headers=headers))

    def status(self, key: str) -> Status:
        return self._parsed(STATUS, self._ask("GET", _path(key)))

    def progress(self, key: str, offset: int) -> bytes:
        """The lines of progress.jsonl from a byte on, as far as they are there."""
        return self._ask("GET", f"{_path(key)}/progress?from={offset}&wait=0")

    def stop(self, key: str) -> None:
        """Have a trial end now, with a checkpoint, as SIGTERM does."""
        self._ask("POST", f"{_path(key)}/stop")

    def delete(self, key: str) -> None:
        """End a trial and remove all that it has left there; no error where nothing is."""
        self._ask("DELETE", _path(key))

    def files(self, key: str) -> tuple[RemoteFile, ...]:
        """What a finished trial has left in its out/."""
        return self._parsed(FILES, self._ask("GET", f"{_path(key)}/files"))

    def download(self, key: str, file: RemoteFile, target: io.BufferedRandom) -> None:
        """Write the content of a file. Raises EndpointFault: it is not what was listed."""
        self._read(target, file.bytes, "GET", f"{_path(key)}/files/{quote(file.path)}")
        target.seek(0)
        if hashlib.file_digest(target, "sha256").hexdigest() != file.sha256:
            raise EndpointFault(f"{self.url} sends {file.path!r} with another content than it has listed")

    def log(self, key: str) -> bytes:
        """The end of what a trial has printed; empty where the endpoint keeps no log."""
        try:
            return self._ask("GET", f"{_path(key)}/log")
        except (TrialFault, EndpointFault):
            return b""

    def _ask(self, method: str, path: str, **content: Any) -> bytes:
        """The body of an answer, or the beginning of a long one."""
        body = io.BytesIO()
        self._read(body, ANSWER_BYTES, method, path, **content)
        return body.getvalue()

    def _read(self, target: BinaryIO, most: int, method: str, path: str, **content: Any) -> None:
        """Write the body of an answer up to so many bytes and a little more. One that was cut is asked for again, as
        long as each time more of it comes than ever before.
        """

        def ask() -> None:
            target.truncate(target.seek(0))
            with self._client.stream(method, self.url + path, **content) as answer:
                if not answer.is_success:
                    _refused(answer)
                    return
                for chunk in answer.iter_raw():
                    self._pause(0)
                    target.write(chunk)
                    if target.tell() > most:
                        break

        furthest = 0
        while True:
            try:
                return retrying(self._away, self._pause)(ask)
            except httpx.HTTPError as fault:
                if (reached := target.tell()) <= furthest:
                    why = f"{type(fault).__name__}: {one_line(str(fault), 200)}"
                    raise EndpointAway(f"{self.url} did not answer for {self._away:g} s ({why})") from fault
                furthest = reached

    def _parsed(self, form: TypeAdapter[T], body: bytes) -> T:
        try:
            return form.validate_json(body)
        except ValidationError as wrong:
            raise EndpointFault(f"{self.url} answers in another form: {one_line(str(wrong), 500)}") from wrong


def _refused(answer: httpx.Response) -> None:
    """Raise what the status of an answer stands for; nothing where nothing is left to delete."""
    code = answer.status_code
    if answer.request.method == "DELETE" and code in GONE:
        return
    if code in PASSING:
        answer.raise_for_status()
    body = next(answer.iter_raw(), b"")
    message = f"HTTP {code}: {one_line(body.decode(errors='replace'), 500)}".rstrip(": ")
    if code in REFUSED:
        raise TrialFault(f"the endpoint refused the trial: {message}")
    login = ": see the login in its block" if code in (401, 403) else ""
    raise EndpointFault(f"{answer.request.url.host} answers {message}{login}")


def _path(key: str) -> str:
    return f"/trials/{quote(key, safe='')}"
