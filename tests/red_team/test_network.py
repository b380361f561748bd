"""The red team against the network: real listeners of every kind wait on this machine, and nobody reaches them."""

from __future__ import annotations

import os
import select
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks.sandbox.confinement import Level
from tests.support.levels import SANDBOXED
from tests.support.red_team import Assault, Ground, attack

SEND = """
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

def raw(family, kind, protocol=0):
    with socket.socket(family, kind, protocol) as made:
        return made.fileno()

t = {name: tuple(value) if isinstance(value, list) else value for name, value in TARGETS.items()}
abstract = chr(0) + t["abstract"]
attempt("tcp", lambda: stream(socket.AF_INET, t["tcp"]))
attempt("udp", lambda: datagram(socket.AF_INET, t["udp"]))
attempt("unix", lambda: stream(socket.AF_UNIX, t["unix"]))
attempt("abstract", lambda: stream(socket.AF_UNIX, abstract))
attempt("unix datagram", lambda: datagram(socket.AF_UNIX, t["unix"] + ".d"))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    attempt(f"a pair of kind {int(kind)}", lambda: from_a_pair(kind, t["unix"] + ".d"))
attempt("vsock", lambda: raw(40, socket.SOCK_STREAM))
attempt("alg", lambda: raw(38, socket.SOCK_SEQPACKET))
model()
"""


@dataclass(frozen=True)
class Listeners:
    """Sockets of every kind in the engine's own process."""

    targets: dict[str, object]
    """What TARGETS says of them."""
    sockets: dict[str, socket.socket]

    def reached(self) -> set[str]:
        """Who has had a caller or a message since one asked last."""
        found = set[str]()
        while ready := select.select(list(self.sockets.values()), [], [], 0)[0]:
            for made in ready:
                found |= {name for name, mine in self.sockets.items() if mine is made}
                if made.type == socket.SOCK_STREAM:
                    made.accept()[0].close()
                else:
                    made.recv(100)
        return found


@pytest.fixture(scope="module")
def listeners() -> Iterator[Listeners]:
    """Open while this module's programs run. The folder's name is short, as that of a socket has to be."""
    abstract = f"red-team-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        Path(folder).chmod(0o755)
        places: dict[str, tuple[int, object]] = {
            "": (socket.AF_INET, ("127.0.0.1", 0)), "unix": (socket.AF_UNIX, f"{folder}/s"),
            "abstract": (socket.AF_UNIX, f"\0{abstract}"),
        }  # fmt: skip
        made: dict[str, socket.socket] = {}
        for name, (family, address) in places.items():
            is_local = family == socket.AF_UNIX
            stream = made[name or "tcp"] = closing.enter_context(socket.socket(family))
            datagrams = closing.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            made[f"{name} datagram" if is_local else "udp"] = datagrams
            stream.bind(address)
            stream.listen()
            datagrams.bind(f"{address}.d" if is_local else address)
        for path in Path(folder).iterdir():
            path.chmod(0o777)
        inet = {name: one.getsockname()[:2] for name, one in made.items() if name.startswith(("tcp", "udp"))}
        yield Listeners({**inet, "unix": f"{folder}/s", "abstract": abstract}, made)


def send(ground: Ground, listeners: Listeners, level: Level, network: bool = False) -> tuple[Assault, set[str]]:
    """What the program tried, and who heard of it."""
    listeners.reached()
    assault = attack(ground, SEND, level, targets=listeners.targets, settings={"network": network})
    return assault, listeners.reached()


OF_OTHER_FAMILIES = ("vsock", "alg")
"""Sockets to the host of this virtual machine, and to the kernel's ciphers."""


@pytest.mark.parametrize("level", SANDBOXED)
@pytest.mark.parametrize("network", [False, True])
def test_red_team_nobody_hears_of_a_program_and_with_a_network_no_socket_of_this_machine_is_given(
    tmp_path: Path, listeners: Listeners, level: Level, network: bool
) -> None:
    """TCP, UDP, Unix sockets with and without a file, and pairs of sockets that are pointed elsewhere. Where the environment grants a network: TCP and UDP are reached."""
    assault, reached = send(Ground.lay(tmp_path), listeners, level, network)
    assert assault.run.status == "finished"
    assert all(assault.attempts[name].refused for name in OF_OTHER_FAMILIES)
    assert reached == ({"tcp", "udp"} if network else set())


def test_red_team_without_a_sandbox_every_listener_is_reached(tmp_path: Path, listeners: Listeners) -> None:
    """What nobody hears above is kept by the sandbox: at none the same program reaches all of them."""
    _, reached = send(Ground.lay(tmp_path), listeners, "none")
    assert reached == {*listeners.sockets} - {"abstract datagram"}
