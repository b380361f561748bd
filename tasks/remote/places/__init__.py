"""Places where trials are trained on another machine. One file each; the file's name is that of the trainer.

A place finds or deploys an endpoint that speaks the protocol of tasks/remote/endpoint.py. Its fields are the settings
of the environment's section. To add one: its settings in environments/remote.py and a file here.
"""

from __future__ import annotations

import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from environments import plugins
from environments.plugins import Refused
from environments.remote import Address, Deployed, RemoteSettings
from tasks.remote.endpoint import EndpointFault, RemoteEndpoint, TrialFault
from tasks.system import interrupt, redact

PACKAGE = "tasks.remote.places"
LISTED_SECONDS = 30.0
"""Longest time until a new deployment is found by its name."""


class RemotePlace(RemoteSettings, ABC):
    """Where trials of one environment are trained."""

    @abstractmethod
    def check(self) -> None:
        """Check, without starting anything, that trials can be sent. Raises Refused with the remedy."""

    @abstractmethod
    def reach(self, key: str, token: str, seconds: float) -> Address:
        """The endpoint that takes the trial with this key; one that takes the token is deployed if there is none.

        It is to end by itself after so many seconds. Raises EndpointFault, after `ready_seconds` at the latest.
        """

    @abstractmethod
    def tear_down(self, key: str, patience: float) -> None:
        """Remove all that was started for a key; no error where nothing is. Raises EndpointFault, after `patience`."""


class CloudFault(EndpointFault):
    """The cloud answers with an error, which may be gone later. One that would be the same is an EndpointFault."""


class DeployedPlace(Deployed, RemotePlace):
    """A cloud: one container for each trial, from an image that serves the protocol on `port`.

    Its name follows from the trial's key, so a resumed campaign or a sweep finds it. The container is handed a token
    that only the trial's job has, and the cloud the time after which it is to remove the container by itself.
    """

    @abstractmethod
    def look_up(self, name: str) -> str | None:
        """The address of a deployment; empty while it has none, None if there is no such deployment."""

    @abstractmethod
    def deploy(self, name: str, variables: dict[str, str], seconds: float) -> None:
        """Have a container started, for so many seconds at most; no error where it is started."""

    def check(self) -> None:
        if bool(self.gpu) != bool(self.gpu_count):
            raise Refused(f"gpu = {self.gpu!r} and gpu_count = {self.gpu_count}: state gpu and gpu_count, or neither")
        try:
            self.look_up(name_of("check"))
        except EndpointFault as fault:
            raise Refused(f"no trial can be deployed: {fault}. See the login and the extra of this trainer") from fault

    def reach(self, key: str, token: str, seconds: float) -> Address:
        redact.remember("ENDPOINT_TOKEN", token)
        name, until = name_of(key), time.monotonic() + self.ready_seconds
        requested, is_deployed, reason = -math.inf, False, "it is not listed"
        while time.monotonic() < until:
            try:
                url = self.look_up(name)
                if url is None and time.monotonic() > requested + LISTED_SECONDS:
                    if is_deployed:
                        raise EndpointFault(f"the deployment {name} has ended before it served the protocol")
                    # Where the answer is lost, it may be there, and is found once it is listed.
                    requested = time.monotonic()
                    self.deploy(name, {"ENDPOINT_TOKEN": token, "NIGHTSHIFT_KEY": key}, seconds)
                    is_deployed = True
                if url and _serves(address := Address(url=url, token=token), self.answer_seconds):
                    return address
                reason = "it does not serve the protocol" if url else "it has no address"
            except (CloudFault, ValidationError) as fault:  # also of an address to which no token may be sent
                reason = str(fault)
            interrupt.wait(self.poll_seconds)
        raise EndpointFault(
            f"the deployment {name} was not ready within ready_seconds = {self.ready_seconds:g}: {reason}"
        )


def load(trainer: str, settings: Mapping[str, Any]) -> RemotePlace:
    """The place of a trainer with the settings of an environment's section. Refused if its package is missing."""
    return plugins.make(PACKAGE, trainer, RemotePlace, settings)  # type: ignore[type-abstract]


def _serves(address: Address, seconds: float) -> bool:
    try:
        with RemoteEndpoint(address, 0.0, seconds) as endpoint:
            endpoint.check()
    except (EndpointFault, TrialFault):
        return False
    return True


def name_of(key: str) -> str:
    """The name of the deployment for a trial's key, as clouds take it: a-z, 0-9 and dashes."""
    return f"nightshift-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
