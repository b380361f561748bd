"""Modal: one sandbox for each trial, by its SDK (`pip install 'nightshift-rl[modal]'`).

The login is the SDK's own: `modal token new`, or MODAL_TOKEN_ID and MODAL_TOKEN_SECRET.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import modal
from modal import exception

from environments.remote import ModalSandbox
from tasks.remote.endpoint import EndpointFault
from tasks.remote.places import CloudFault, DeployedPlace, name_of
from tasks.system import interrupt
from tasks.system.redact import one_line

TUNNEL_SECONDS = 5
LOOK_SECONDS = 0.2
REFUSALS = (
    exception.AuthError, exception.ImageBuildError, exception.InvalidError, exception.NotFoundError,
    exception.PermissionDeniedError,
)  # fmt: skip
T = TypeVar("T")


class Modal(ModalSandbox, DeployedPlace):
    """Sandboxes of one app, whose names are unique there while they run: a second start of one is refused."""

    def look_up(self, name: str) -> str | None:
        return _answer(self._address(name), self.answer_seconds)

    def deploy(self, name: str, variables: dict[str, str], seconds: float) -> None:
        # With a GPU it returns once there is a machine, for which the SDK waits up to 21 minutes. When it is cancelled
        # the SDK ends the sandbox.
        _answer(self._create(name, variables, seconds), self.ready_seconds)

    def tear_down(self, key: str, patience: float) -> None:
        _answer(self._terminate(name_of(key)), patience, to_the_end=True)

    async def _address(self, name: str) -> str | None:
        try:
            sandbox = await modal.Sandbox.from_name.aio(self.app, name)
            if await sandbox.poll.aio() is not None:
                return None
            tunnels = await sandbox.tunnels.aio(timeout=TUNNEL_SECONDS)
        except exception.NotFoundError:
            return None
        except exception.SandboxTimeoutError:
            return ""
        return tunnels[self.port].url if self.port in tunnels else ""

    async def _create(self, name: str, variables: dict[str, str], seconds: float) -> None:
        gpu = f"{self.gpu}:{self.gpu_count}" if self.gpu and self.gpu_count else None
        app = await modal.App.lookup.aio(self.app, create_if_missing=True)
        with suppress(exception.AlreadyExistsError):
            await modal.Sandbox.create.aio(
                *self.command, app=app, name=name, image=modal.Image.from_registry(self.image), env=dict(variables),
                timeout=round(seconds), gpu=gpu, cpu=self.cpu, memory=round(self.memory_gb * 1024),
                encrypted_ports=[self.port],
            )  # fmt: skip

    async def _terminate(self, name: str) -> None:
        with suppress(exception.NotFoundError):
            sandbox = await modal.Sandbox.from_name.aio(self.app, name)
            await sandbox.terminate.aio()


def _answer(question: Coroutine[Any, Any, T], seconds: float, to_the_end: bool = False) -> T:
    """The answer of the cloud, for which the SDK itself would wait without an end.

    Raises CloudFault, EndpointFault, and KeyboardInterrupt when this process is to end, unless `to_the_end`.
    """
    try:
        return asyncio.run(_watched(question, seconds, to_the_end))
    except TimeoutError:
        raise CloudFault(f"Modal: no answer within {seconds:g} seconds") from None
    except (exception.Error, OSError) as fault:
        refused = isinstance(fault, REFUSALS) and not isinstance(fault, exception.ConflictError)
        kind = EndpointFault if refused else CloudFault
        raise kind(f"Modal: {type(fault).__name__}: {one_line(str(fault), 300)}") from fault


async def _watched(question: Coroutine[Any, Any, T], seconds: float, to_the_end: bool) -> T:
    task = asyncio.ensure_future(question)  # asyncio.run cancels it where this ends first, and waits for that
    async with asyncio.timeout(seconds):
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            if not to_the_end:
                interrupt.check()
    return task.result()
