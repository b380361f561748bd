"""An endpoint of your own, which is there already: `url`, or a saved block with its login."""

from __future__ import annotations

import functools
import time
from typing import Any, cast

from environments.plugins import Refused
from environments.remote import Address, HttpEndpoint
from tasks.remote.endpoint import EndpointFault, RemoteEndpoint, TrialFault
from tasks.remote.places import RemotePlace
from tasks.system import redact


class Http(HttpEndpoint, RemotePlace):
    """An endpoint that takes trials of several campaigns at once, and queues what it has no machine for."""

    @property
    def address(self) -> Address:
        return of_block(self.block) if self.block else Address(url=self.url)

    def check(self) -> None:
        try:
            with RemoteEndpoint(self.address, self.answer_seconds, self.answer_seconds) as endpoint:
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
    """Address and token in a Secret of Prefect's; read once, so that an outage of the server ends no training.

    Both are in one block, so that no environment has a token sent elsewhere. Raises Refused: there is no such block, it
    holds something else, or there is no server to read it from.
    """
    import httpx
    from prefect.blocks.system import Secret
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():  # Prefect would start a server of its own
        raise Refused(f"the Secret {name!r} cannot be read without a Prefect server: set PREFECT_API_URL")
    try:
        address = Address.model_validate(cast("Secret[Any]", Secret.load(name)).get())
    except (ValueError, httpx.HTTPError) as fault:
        raise Refused(f"there is no Secret {name!r} with the url and token of an endpoint: {fault}") from fault
    if address.token:
        redact.remember(f"ENDPOINT_{name}", address.token)
    return address
