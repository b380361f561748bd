"""Modal: one sandbox for each trial, by its SDK (`pip install 'nightshift-rl[modal]'`).

The login is the SDK's own: `modal token new`, or MODAL_TOKEN_ID and MODAL_TOKEN_SECRET.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import modal
from modal.exception import AlreadyExistsError, Error, NotFoundError, SandboxTimeoutError

from environments.remote import ModalSandbox
from tasks.remote.places._deployed import CloudFault, DeployedPlace
from tasks.system.redact import capped, clean

TUNNEL_SECONDS = 5
T = TypeVar("T")


class Modal(ModalSandbox, DeployedPlace):
    """Sandboxes of one app, whose names are unique there while they run: a second start of one is refused."""

    def look_up(self, name: str) -> str | None:
        sandbox = self._find(name)
        if sandbox is None:
            return None
        if _asked(sandbox.poll) is not None:
            raise CloudFault(f"the sandbox {name} has ended")
        try:
            tunnels = _asked(lambda: sandbox.tunnels(timeout=TUNNEL_SECONDS)) or {}
        except SandboxTimeoutError:
            return ""
        return tunnels[self.port].url if self.port in tunnels else ""

    def deploy(self, name: str, variables: dict[str, str], seconds: float) -> None:
        gpu = f"{self.gpu}:{self.gpu_count}" if self.gpu and self.gpu_count else None
        try:
            _asked(
                lambda: modal.Sandbox.create(
                    *self.command, app=modal.App.lookup(self.app, create_if_missing=True), name=name,
                    image=modal.Image.from_registry(self.image), env=dict(variables), timeout=round(seconds), gpu=gpu,
                    cpu=self.cpu, memory=round(self.memory_gb * 1024), encrypted_ports=[self.port],
                )
            )  # fmt: skip
        except AlreadyExistsError:
            return

    def remove(self, name: str) -> None:
        if sandbox := self._find(name):
            _asked(sandbox.terminate)

    def _find(self, name: str) -> modal.Sandbox | None:
        return _asked(lambda: modal.Sandbox.from_name(self.app, name))


def _asked(question: Callable[[], T]) -> T | None:
    """The answer of the cloud; None where it knows nothing of that name."""
    try:
        return question()
    except NotFoundError:
        return None
    except (AlreadyExistsError, SandboxTimeoutError):
        raise
    except (Error, OSError) as fault:
        words = capped(" ".join(clean(str(fault))), 300)
        raise CloudFault(f"Modal: {type(fault).__name__}: {words}") from fault
