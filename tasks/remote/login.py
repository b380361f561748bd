"""Logins of endpoints, from saved blocks. A login is sent to the address in its own block, nowhere else."""

from __future__ import annotations

import base64
import functools
import os
from typing import cast

from environments.plugins import Refused
from tasks.remote.endpoint import Address
from tasks.system import redact


@functools.cache
def of_block(name: str) -> Address:
    """Address and login of a saved endpoint block; read once, so that an outage of the server ends no training.

    Raises Refused: there is no such block, it is not valid, or there is no server to read it from.
    """
    import httpx
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from blocks.endpoint import TrainingEndpoint

    api = PREFECT_API_URL.value() or os.environ.get("PREFECT_API_URL")
    if not api:
        raise Refused(f"endpoint block {name!r} cannot be read without a Prefect server: set PREFECT_API_URL")
    try:
        # Prefect may have been imported before the address was set; it would start a server of its own.
        with temporary_settings({PREFECT_API_URL: api}):
            block = cast("TrainingEndpoint", TrainingEndpoint.load(name))
    except (ValueError, httpx.HTTPError) as fault:
        where = redact.without_passwords(api)
        raise Refused(
            f"there is no endpoint block called {name!r} at {where} that can be used (docs/other-machines.md): {fault}"
        ) from fault
    if (secret := block.token or block.password) is None:
        return Address(block.url)
    value = secret.get_secret_value()
    redact.remember(f"ENDPOINT_{name}", value)
    login = f"Bearer {value}"
    if block.username is not None:
        login = f"Basic {base64.b64encode(f'{block.username}:{value}'.encode()).decode()}"
    return Address(block.url, {"Authorization": login})
