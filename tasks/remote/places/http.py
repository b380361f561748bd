"""An endpoint of your own, which is there already: `url`, or a saved block with its login."""

from __future__ import annotations

import time

from environments.plugins import Refused
from environments.remote import HttpEndpoint
from tasks.remote import login
from tasks.remote.endpoint import Address, EndpointFault, RemoteEndpoint, TrialFault
from tasks.remote.places import RemotePlace

CHECK_SECONDS = 10.0
"""How long an endpoint may take to answer before a campaign begins."""


class Http(HttpEndpoint, RemotePlace):
    """An endpoint that takes trials of several campaigns at once, and queues what it has no machine for."""

    @property
    def address(self) -> Address:
        return login.of_block(self.block) if self.block else Address(self.url)

    def check(self) -> None:
        try:
            with RemoteEndpoint(self.address, CHECK_SECONDS, CHECK_SECONDS) as endpoint:
                endpoint.check()
        except (EndpointFault, TrialFault) as fault:
            raise Refused(
                f"the endpoint {self.address.shown} cannot train: {fault}. Start it, or correct "
                f"{'the block ' + repr(self.block) if self.block else 'http.url'} (docs/other-machines.md)"
            ) from fault

    def reach(self, key: str, seconds: float) -> Address:
        return self.address

    def tear_down(self, key: str, patience: float) -> None:
        with RemoteEndpoint(self.address, patience, min(patience, self.answer_seconds), time.sleep) as endpoint:
            # It waits also while this process ends.
            endpoint.delete(key)
