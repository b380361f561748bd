"""The red team against the network: real listeners of every kind wait on this machine, and nobody reaches them."""

from __future__ import annotations

import os
import select
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tasks.sandbox.confinement import Level
from tests.support.levels import SANDBOXED
from tests.support.red_team import Ground, attack

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
attempt("tcp", lambda: stream(socket.AF_INET, t["tcp"]))
attempt("udp", lambda: datagram(socket.AF_INET, t["udp"]))
attempt("unix", lambda: stream(socket.AF_UNIX, t["unix"]))
attempt("abstract", lambda: stream(socket.AF_UNIX, t["abstract"]))
attempt("unix datagram", lambda: datagram(socket.AF_UNIX, t["unix datagram"]))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    attempt(f"a pair of kind {int(kind)}", lambda: from_a_pair(kind, t["unix datagram"]))
attempt("vsock", lambda: raw(40, socket.SOCK_STREAM))
attempt("alg", lambda: raw(38, socket.SOCK_SEQPACKET))
model()
"""

Listeners = dict[str, socket.socket]


@pytest.fixture(scope="module")
def listeners() -> Iterator[Listeners]:
    """Sockets of every kind, in the engine's own process, open while this module's programs run. The folder's name is
    short, as that of a socket has to be."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        Path(folder).chmod(0o755)
        places = {
            "tcp": ("127.0.0.1", 0), "udp": ("127.0.0.1", 0), "unix": f"{folder}/s", "unix datagram": f"{folder}/s.d",
            "abstract": f"\0red-team-{os.getpid()}",
        }  # fmt: skip
        made: Listeners = {}
        for name, address in places.items():
            kind = socket.SOCK_DGRAM if name in ("udp", "unix datagram") else socket.SOCK_STREAM
            family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
            made[name] = closing.enter_context(socket.socket(family, kind))
            made[name].bind(address)
            if kind == socket.SOCK_STREAM:
                made[name].listen()
        for path in Path(folder).iterdir():
            path.chmod(0o777)
        yield made


def reached(listeners: Listeners) -> set[str]:
    """Who has had a caller or a message since one asked last."""
    found = set[str]()
    while ready := [name for name, one in listeners.items() if select.select([one], [], [], 0)[0]]:
        for name in ready:
            if listeners[name].type == socket.SOCK_STREAM:
                listeners[name].accept()[0].close()
            else:
                listeners[name].recv(100)
        found |= {*ready}
    return found


@pytest.mark.parametrize(
    ("level", "network"), [*((level, network) for level in SANDBOXED for network in (False, True)), ("none", False)]
)
def test_red_team_nobody_hears_of_a_program_and_with_a_network_no_socket_of_this_machine_is_given(
    tmp_path: Path, listeners: Listeners, level: Level, network: bool
) -> None:
    """TCP, UDP, Unix sockets with and without a file, and pairs of sockets that are pointed elsewhere. Where the
    environment grants a network, TCP and UDP are reached; without a sandbox the same program reaches all of them."""
    reached(listeners)
    names = {name: one.getsockname() for name, one in listeners.items()}
    targets = {name: os.fsdecode(at) if isinstance(at, bytes) else at for name, at in names.items()}
    assault = attack(Ground.lay(tmp_path), SEND, level, targets=targets, settings={"network": network})
    assert assault.run.status == "finished"
    if level == "none":
        assert reached(listeners) == {*listeners}
        return
    # Sockets to the host of this virtual machine, and to the kernel's ciphers.
    assert assault.attempts["vsock"].refused and assault.attempts["alg"].refused
    assert reached(listeners) == ({"tcp", "udp"} if network else set())
