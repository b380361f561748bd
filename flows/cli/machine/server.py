"""`nightshift server`: what a Prefect server needs for campaigns, put there by a command each.

The server is the stated one (--server, PREFECT_API_URL), else that of `nightshift up`. Each command may be repeated:
what is there is brought up to date, and what somebody switched off stays off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx

from environments.plugins import Refused
from flows.server import server_process
from flows.server import setup as at_server
from flows.server.setup import Kind
from tasks.system.home import home


def setup(stated: str | None) -> int:
    """Put the automations, the block types and the pool of the catalogue on a server."""
    url = connect(stated)
    with server_process.used(url, home()), answering(url):
        written = at_server.set_up(url, server_process.credentials(url, home()))
    for what, which in written.items():
        print(f"{what}: {which}")
    return 0


def pool(name: str, kind: Kind, stated: str | None) -> int:
    """Make a work pool on a server, or bring it up to date."""
    url = connect(stated)
    with server_process.used(url, home()), answering(url):
        made = at_server.make_pool(name, kind, url, server_process.credentials(url, home()))
    print(f"pool: {name}, {kind}, {'made' if made else 'is there'}")
    return 0


def connect(stated: str | None) -> str:
    """The API of the server, with Prefect's home inside ours. Refused if there is none."""
    server_process.settle_in(home())
    note = server_process.daemon(home() / ".prefect").living()
    url = server_process.stated_server(stated, home()) or (note.url if note and note.stays else None)
    if url is None:
        raise Refused("no Prefect server: `nightshift up` starts one; for another set PREFECT_API_URL, or --server")
    return url


@contextlib.contextmanager
def answering(url: str) -> Iterator[None]:
    """Refuse where a server does not take what is put there."""
    try:
        yield
    except httpx.HTTPError as fault:
        raise Refused(f"the Prefect server at {url.removesuffix('/api')} does not take it: {fault}") from fault
