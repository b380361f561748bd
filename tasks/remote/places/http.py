"""An endpoint of your own, which is there already: `url`, or a saved block with its login."""

from __future__ import annotations

import base64
import functools
import time
from typing import cast

from environments.plugins import Refused
from environments.remote import HttpEndpoint
from tasks.remote.endpoint import Address, EndpointFault, RemoteEndpoint, TrialFault
from tasks.remote.places import RemotePlace
from tasks.system import redact

CHECK_SECONDS = 10.0
"""How long an endpoint may take to answer before a campaign begins."""


class Http(HttpEndpoint, RemotePlace):
    """An endpoint that takes trials of several campaigns at once, and queues what it has no machine for."""

    @property
    def address(self) -> Address:
        return of_block(self.block) if self.block else Address(self.url)

    def check(self) -> None:
        try:
            with RemoteEndpoint(self.address, CHECK_SECONDS, CHECK_SECONDS) as endpoint:
                endpoint.check()
        except (EndpointFault, TrialFault) as fault:
            raise Refused(
                f"the endpoint {self.address.url} cannot train: {fault}. Start it, or correct "
                f"{'the block ' + repr(self.block) if self.block else 'http.url'} (docs/other-machines.md)"
            ) from fault

    def reach(self, key: str, token: str, seconds: float) -> Address:
        return self.address

    def tear_down(self, key: str, patience: float) -> None:
        # It waits also while this process ends.
        with RemoteEndpoint(self.address, patience, min(patience, self.answer_seconds), time.sleep) as endpoint:
            endpoint.delete(key)


@functools.cache
def of_block(name: str) -> Address:
    """Address and login of a saved endpoint block; read once, so that an outage of the server ends no training.

    Raises Refused: there is no such block, it is not valid, or there is no server to read it from.
    """
    import httpx
    from prefect.settings import PREFECT_API_URL

    from blocks.endpoint import TrainingEndpoint

    if not PREFECT_API_URL.value():  # Prefect would start a server of its own
        raise Refused(f"endpoint block {name!r} cannot be read without a Prefect server: set PREFECT_API_URL")
    try:
        block = cast("TrainingEndpoint", TrainingEndpoint.load(name))
    except (ValueError, httpx.HTTPError) as fault:
        raise Refused(f"there is no endpoint block called {name!r} that can be used: {fault}") from fault
    if (secret := block.token or block.password) is None:
        return Address(block.url)
    value = secret.get_secret_value()
    redact.remember(f"ENDPOINT_{name}", value)
    pair = base64.b64encode(f"{block.username}:{value}".encode()).decode()
    return Address(block.url, {"Authorization": f"Bearer {value}" if block.token else f"Basic {pair}"})
