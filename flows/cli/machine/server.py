"""`nightshift server`: what a Prefect server needs for campaigns, put there by a command each.

The server is the stated one (--server, PREFECT_API_URL), else that of `nightshift up`. Each command may be repeated:
what is there is brought up to date, and what somebody switched off stays off.
"""

from __future__ import annotations

import contextlib
import getpass
import sys
from collections.abc import Iterator
from typing import cast, get_args

import httpx

from environments import plugins
from environments.plugins import Refused
from flows.cli.machine.up import POOL
from flows.server import automations, block_types, notifications, server_process, work_pools
from flows.server.notifications import Occasion
from flows.server.work_pools import Kind
from tasks.system.home import home


def setup(stated: str | None) -> int:
    """Put the automations, the block types and the pool of the catalogue on a server."""
    url = connect(stated)
    with server_process.used(url, home()), answering(url):
        login = server_process.credentials(url, home())
        written = automations.put(url, login)
        blocks = block_types.register()
        made = work_pools.make(POOL, "process", url, login)
    print(f"automations: {', '.join(written) or 'up to date'}")
    print(f"blocks: {', '.join(blocks)}")
    print(f"pool: {POOL} {'made' if made else 'is there'}")
    return 0


def pool(name: str, kind: Kind, stated: str | None) -> int:
    """Make a work pool on a server, or bring it up to date."""
    url = connect(stated)
    with server_process.used(url, home()), answering(url):
        made = work_pools.make(name, kind, url, server_process.credentials(url, home()))
    print(f"pool: {name}, {kind}, {'made' if made else 'is there'}")
    return 0


def notify(address: str | None, occasions: str, stated: str | None) -> int:
    """Have a server send messages to an address, by default that on stdin. A first message is sent at once."""
    if address is None:
        asked = getpass.getpass("Address (not shown): ") if sys.stdin.isatty() else sys.stdin.readline()
        address = asked.strip()
    chosen = tuple(word.strip() for word in occasions.split(",") if word.strip())
    for one in chosen:
        plugins.require(one, get_args(Occasion), what="occasion")
    if not chosen:
        raise Refused(f"--on names no occasion: give some of {', '.join(get_args(Occasion))}")
    name = notifications.check(address)
    url = connect(stated)
    with server_process.used(url, home()), answering(url):
        block = notifications.block_of(address)
        notifications.try_out(block, address, f"{url.removesuffix('/api')}/automations")
        block.save(name, overwrite=True)
        notifications.put(cast(tuple[Occasion, ...], chosen), url, server_process.credentials(url, home()))
    print(f"notifications: {', '.join(chosen)}, by the block {name}; a first message was sent")
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
