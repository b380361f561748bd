"""The red team against the network: real listeners of every kind wait on this machine, and nobody reaches them.

What the engine itself offers (a Prefect or MLflow server, an agent's socket) is what a program would talk to.
"""

from __future__ import annotations

import os
import select
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from tasks.sandbox.confinement import Level
from tests.support.levels import SANDBOXED
from tests.support.red_team import Assault, Ground, attack

SEND = """
import urllib.request
SENT = b"out of the sandbox"

def stream(family, address):
    with socket.socket(family) as client:
        client.settimeout(1)
        client.connect(address)
        return client.send(SENT)

def datagram(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        return client.sendto(SENT, address)

def from_a_pair(kind, address):
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    return here.sendto(SENT, address)

def connected_pair(address):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    here.connect(address)
    return here.send(SENT)

def flow(url):
    asked = urllib.request.Request(url + "/deployments/1/create_flow_run", b"{}", {"Content-Type": "application/json"})
    return urllib.request.urlopen(asked, timeout=10).status

def raw(family, kind, protocol=0):
    with socket.socket(family, kind, protocol) as made:
        return made.fileno()

t = {name: tuple(value) if isinstance(value, list) else value for name, value in TARGETS.items()}
abstract = chr(0) + t["abstract"]
attempt("tcp", lambda: stream(socket.AF_INET, t["tcp"]))
attempt("tcp6", lambda: stream(socket.AF_INET6, t["tcp6"]))
attempt("udp", lambda: datagram(socket.AF_INET, t["udp"]))
attempt("flow", lambda: flow(t["api"]))
attempt("unix", lambda: stream(socket.AF_UNIX, t["unix"]))
attempt("abstract", lambda: stream(socket.AF_UNIX, abstract))
attempt("unix datagram", lambda: datagram(socket.AF_UNIX, t["unix"] + ".d"))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    attempt(f"a pair of kind {int(kind)}", lambda: from_a_pair(kind, t["unix"] + ".d"))
attempt("a connected pair", lambda: connected_pair(abstract))
attempt("vsock", lambda: raw(40, socket.SOCK_STREAM))
attempt("alg", lambda: raw(38, socket.SOCK_SEQPACKET))
model()
"""


class Api(BaseHTTPRequestHandler):
    """Stands for the engine's server: it writes down who asks for a flow run."""

    requests: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.requests.append(self.path)
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class Listeners:
    """Sockets of every kind, and an HTTP server, in the engine's own process."""

    folder: Path
    port: int
    abstract: str
    sockets: dict[str, socket.socket]

    def addresses(self) -> dict[str, object]:
        """What TARGETS says of them."""
        inet = {name: made.getsockname()[:2] for name, made in self.sockets.items() if name[0] in "tu"}
        api = f"http://127.0.0.1:{self.port}/api"
        return {"tcp6": ("::1", 9), "udp6": ("::1", 9)} | {
            **{name: address for name, address in inet.items() if not name.startswith("unix")},
            "unix": str(self.folder / "s"), "abstract": self.abstract, "api": api,
        }  # fmt: skip

    def reached(self) -> set[str]:
        """Who has had a caller or a message since one asked last."""
        found = {"api"} if Api.requests else set()
        Api.requests.clear()
        while ready := select.select(list(self.sockets.values()), [], [], 0)[0]:
            for made in ready:
                found |= {name for name, mine in self.sockets.items() if mine is made}
                if made.type == socket.SOCK_STREAM:
                    made.accept()[0].close()
                else:
                    made.recv(100)
        return found


def sockets(folder: Path, abstract: str) -> dict[str, socket.socket]:
    """A stream and a datagram socket of each family, by the names of TARGETS."""
    made = {}
    for name, family, host in (("", socket.AF_INET, "127.0.0.1"), ("6", socket.AF_INET6, "::1")):
        if name and "::1" not in str(psutil.net_if_addrs()):
            continue
        made[f"tcp{name}"] = bound(socket.socket(family), (host, 0))
        made[f"udp{name}"] = bound(socket.socket(family, socket.SOCK_DGRAM), (host, 0))
    for name, address in (("unix", str(folder / "s")), ("abstract", f"\0{abstract}")):
        made[name] = bound(socket.socket(socket.AF_UNIX), address)
        made[f"{name} datagram"] = bound(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), f"{address}.d")
    for path in (folder / "s", folder / "s.d"):
        path.chmod(0o777)
    return made


def bound(made: socket.socket, address: str | tuple[str, int]) -> socket.socket:
    made.bind(address)
    if made.type == socket.SOCK_STREAM:
        made.listen()
    return made


@pytest.fixture(scope="module")
def listeners() -> Iterator[Listeners]:
    """Open while this module's programs run. The folder's name is short, as that of a socket has to be."""
    abstract = f"red-team-{os.getpid()}"
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadingHTTPServer(("127.0.0.1", 0), Api) as api,
        ExitStack() as closing,
    ):
        Path(folder).chmod(0o755)
        made = sockets(Path(folder), abstract)
        for one in made.values():
            closing.enter_context(one)
        threading.Thread(target=api.serve_forever, args=(0.05,), daemon=True).start()
        closing.callback(api.shutdown)
        yield Listeners(Path(folder), api.server_port, abstract, made)


@dataclass(frozen=True)
class Sent:
    assault: Assault
    reached: set[str]


def send(ground: Ground, listeners: Listeners, level: Level, network: bool = False) -> Sent:
    listeners.reached()
    assault = attack(ground, SEND, level, targets=listeners.addresses(), settings={"network": network})
    return Sent(assault, listeners.reached())


@pytest.fixture(scope="module", params=SANDBOXED)
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, listeners: Listeners) -> Sent:
    return send(Ground.lay(tmp_path_factory.mktemp("sent")), listeners, request.param)


@pytest.fixture(scope="module", params=SANDBOXED)
def online(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, listeners: Listeners) -> Sent:
    """The same, of an environment with `network = true`."""
    return send(Ground.lay(tmp_path_factory.mktemp("online")), listeners, request.param, network=True)


ATTEMPTS = 12
OF_OTHER_FAMILIES = ("vsock", "alg")
"""Sockets to the host of this virtual machine, and to the kernel's ciphers."""


def test_red_team_nobody_hears_of_a_program_without_a_network(sent: Sent) -> None:
    """TCP, UDP, a flow of the engine's server, Unix sockets with and without a file, and pairs of
    sockets that are pointed elsewhere."""
    assert len(sent.assault.attempts) == ATTEMPTS and sent.assault.run.status == "finished"
    assert sent.reached == set()
    assert all(sent.assault.attempts[name].refused for name in OF_OTHER_FAMILIES)


def test_red_team_with_a_network_the_sockets_of_this_machine_are_still_not_given(online: Sent) -> None:
    """All of that again where the environment grants a network: TCP and UDP are reached, Unix sockets are not."""
    assert len(online.assault.attempts) == ATTEMPTS
    assert {"tcp", "udp", "api"} <= online.reached <= {"tcp", "udp", "tcp6", "udp6", "api"}
    assert all(online.assault.attempts[name].refused for name in OF_OTHER_FAMILIES)


def test_red_team_without_a_sandbox_every_listener_is_reached(tmp_path: Path, listeners: Listeners) -> None:
    """What nobody hears above is kept by the sandbox: at none the same program reaches all of them."""
    assert send(Ground.lay(tmp_path), listeners, "none").reached == {"api", *listeners.sockets} - {
        "udp6",
        "abstract datagram",
    }
