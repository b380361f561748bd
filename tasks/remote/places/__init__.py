"""Places where trials are trained on another machine. One file each; the file's name is that of the trainer.

A place finds or deploys an endpoint that speaks the protocol of tasks/remote/endpoint.py. Its fields are the settings
of the environment's section. To add one: its settings in environments/remote.py and a file here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from environments import plugins
from environments.remote import RemoteSettings
from tasks.remote.endpoint import Address

PACKAGE = "tasks.remote.places"


class RemotePlace(RemoteSettings, ABC):
    """Where trials of one environment are trained."""

    @abstractmethod
    def check(self) -> None:
        """Check, without starting anything, that trials can be sent. Raises Refused with the remedy."""

    @abstractmethod
    def reach(self, key: str, seconds: float) -> Address:
        """The endpoint that takes the trial with this key; one is deployed if there is none for it.

        It is to end by itself after so many seconds. Raises EndpointFault, after `ready_seconds` at the latest.
        """

    @abstractmethod
    def tear_down(self, key: str, patience: float) -> None:
        """Remove all that was started for a key; no error where nothing is. Raises EndpointFault, after `patience`."""


def load(trainer: str, settings: Mapping[str, Any]) -> RemotePlace:
    """The place of a trainer with the settings of an environment's section. Refused if its package is missing."""
    return plugins.make(PACKAGE, trainer, RemotePlace, settings)  # type: ignore[type-abstract]
