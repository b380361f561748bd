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

    Raises:
        Refused: there is no such block, it is not valid, or there is no server to read it from.
    """
    import httpx
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from blocks.endpoint import TrainingEndpoint

    api = PREFECT_API_URL.value() or os.environ.get("PREFECT_API_URL")
    if not api:
        raise Refused(
            f"endpoint block {name!r} cannot be read without a Prefect server: set PREFECT_API_URL, or give http.url"
        )
    try:
        # Prefect may have been imported before the address was set; it would start a server of its own.
        with temporary_settings({PREFECT_API_URL: api}):
            block = cast("TrainingEndpoint", TrainingEndpoint.load(name))
    except (ValueError, httpx.HTTPError) as fault:
        where = redact.without_passwords(api)
        raise Refused(
            f"there is no endpoint block called {name!r} at {where} that can be used (docs/other-machines.md): {fault}"
        ) from fault
    headers = {}
    if block.token is not None:
        headers["Authorization"] = f"Bearer {_secret(name, block.token.get_secret_value())}"
    elif block.username is not None and block.password is not None:
        pair = f"{block.username}:{_secret(name, block.password.get_secret_value())}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Address(block.url, headers)


def _secret(name: str, value: str) -> str:
    redact.remember(f"ENDPOINT_{name}", value)
    return value
