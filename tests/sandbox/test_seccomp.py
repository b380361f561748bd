"""System call filters: their byte code is evaluated here as the kernel does it, and tried by programs behind it."""

from __future__ import annotations

import errno
import platform
import re
import struct
from pathlib import Path

import pytest

from tasks.sandbox import confinement, seccomp
from tests.support.levels import SANDBOXED
from tests.support.sandboxed import answers

SOURCE = Path(seccomp.__file__).read_text()
TABLE = {
    name: (int(x86_64), None if aarch64 == "-" else int(aarch64))
    for name, x86_64, aarch64 in re.findall(r"\b([a-z]\w+) (\d+) (\d+|-)(?=\s|\")", SOURCE)
}
"""Every call that the module names: its numbers on x86_64 and aarch64."""
ALLOW, KILL = 0x7FFF0000, 0x80000000
DEVICES = (0xC020462A, 0xC00846D6, 0x30000001, 0x21, 0xC0106407, 0x80084B01)
"""Requests of NVIDIA ('F', plain numbers), DRM ('d') and AMD ('K')."""
NAMESPACES = (0x80, 0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
VERSION = confinement.landlock_version()
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Filters are built for this kind of processor, wherever the tests run."""
    monkeypatch.setattr(platform, "machine", lambda: request.param)
    return str(request.param)


def number(name: str) -> int:
    """A call's number on the machine."""
    found = TABLE[name][seccomp.ARCHITECTURES[platform.machine()][0]]
    assert found is not None
    return found


def answer(code: bytes, call: int, *arguments: int, architecture: int | None = None) -> int:
    """What a filter says to a call: the classic BPF that the kernel runs, as far as these filters use it."""
    if architecture is None:
        architecture = seccomp.ARCHITECTURES[platform.machine()][1]
    words = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", call, architecture, 0, *(word % 2**64 for word in words))
    program, at, held = list(struct.iter_unpack("=HBBI", code)), 0, 0
    while True:
        what, true, false, value = program[at]
        at += 1
        if what == 0x20:
            held = struct.unpack_from("=I", data, value)[0]
        elif what == 0x54:
            held &= value
        elif what == 0x06:
            return value
        else:
            taken = {0x15: held == value, 0x25: held > value, 0x45: bool(held & value)}[what]
            at += true if taken else false


def refusal(number: int) -> int:
    return 0x00050000 | number


PERM = refusal(errno.EPERM)


def filters() -> list[bytes]:
    """Every filter that there is."""
    behind = [seccomp.behind_namespaces(network) for network in (False, True)]
    return behind + [
        seccomp.without_namespaces(network, version) for network in (False, True) for version in range(1, 8)
    ]


def test_an_ordinary_program_is_refused_nothing_that_it_needs(machine: str) -> None:
    ordinary = {"x86_64": (0, 1, 2, 3, 9, 12, 39, 59, 257, 202), "aarch64": (56, 57, 63, 64, 222, 214, 172, 221, 98)}
    for code in filters():
        assert {answer(code, call) for call in ordinary[machine]} == {ALLOW}
        assert answer(code, number("clone"), 0x3D0F00) == ALLOW  # a thread
        assert answer(code, number("clone"), 0x1200011) == ALLOW  # fork
        assert {answer(code, number("ioctl"), 3, request) for request in (0x5401, *DEVICES)} == {ALLOW}  # isatty first
        assert answer(code, number("socketpair"), 1, 1 | 0x80000) == ALLOW


def test_foreign_calling_conventions_and_calls_of_the_future_are_refused(machine: str) -> None:
    i386, arm = 0x40000003, 0x40000028
    for code in filters():
        assert {answer(code, 1, architecture=foreign) for foreign in (i386, arm, 0)} == {KILL}
        assert answer(code, seccomp.YOUNGEST) == ALLOW
        for unknown in (seccomp.YOUNGEST + 1, 999, 0x3FFFFFFF, 0x40000000, 0x40000001, 0x40000000 + 101, 2**32 - 1):
            assert answer(code, unknown) == refusal(errno.ENOSYS)


def test_what_undoes_a_sandbox_is_refused_everywhere(machine: str) -> None:
    column = seccomp.ARCHITECTURES[machine][0]
    refused = [name for name in re.findall(r"([a-z]\w+) \d+", seccomp._ALWAYS) if TABLE[name][column] is not None]
    assert len(refused) > 45
    for code in filters():
        assert {answer(code, number(call)) for call in refused} == {PERM}
        assert {answer(code, number("clone"), flag | 17) for flag in NAMESPACES} == {PERM}
        assert answer(code, number("clone3")) == refusal(errno.ENOSYS)


@pytest.mark.parametrize(
    ("level", "network", "granted"),
    [
        ("bwrap", False, {1, 2, 10, 16}),
        ("bwrap", True, {2, 10, 16}),
        ("landlock", False, set()),
        ("landlock", True, {2, 10, 16}),
    ],
)
def test_the_families_of_sockets_are_those_of_the_level(
    machine: str, level: str, network: bool, granted: set[int]
) -> None:
    code = seccomp.behind_namespaces(network) if level == "bwrap" else seccomp.without_namespaces(network, 7)
    for family in range(64):
        expected = ALLOW if family in granted else refusal(errno.EACCES)
        assert answer(code, number("socket"), family, 1) == expected
        assert answer(code, number("socket"), family | 1 << 32, 1) == expected  # the kernel takes the low half too


def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    header = HEADERS[machine]
    if not header.is_file():
        pytest.skip(f"no {header}: the headers of Linux are not installed")
    stated = {call: int(at) for call, at in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", header.read_text())}
    for call, numbers in TABLE.items():
        here = numbers[seccomp.ARCHITECTURES[machine][0]]
        if here is not None and here <= max(stated.values()):
            assert stated.get(call) == here, call


ITSELF = """
import errno, json, os, pathlib, resource, shutil, sys
told = {}
def attempt(name, function, *arguments):
    try: told[name] = function(*arguments) or "done"
    except OSError as refused: told[name] = errno.errorcode[refused.errno]
keeper, out = os.getppid(), sys.argv[1]
attempt("kill itself", os.kill, os.getpid(), 0)
attempt("kill its keeper", os.kill, keeper, 0)
attempt("limit itself", resource.setrlimit, resource.RLIMIT_CORE, (0, 0))
attempt("limit its keeper", lambda: resource.prlimit(keeper, resource.RLIMIT_CORE) and None)
attempt("pin itself", os.sched_setaffinity, 0, os.sched_getaffinity(0))
attempt("pin its keeper", os.sched_setaffinity, keeper, os.sched_getaffinity(0))
attempt("be nice", lambda: os.nice(1) and None)
attempt("touch", lambda: pathlib.Path(out, "file").touch())
attempt("chmod", os.chmod, out + "/file", 0o777)
attempt("copy the times", lambda: shutil.copystat(sys.executable, out + "/file"))
told["mode"] = os.stat(out + "/file").st_mode & 0o111
attempt("cut its own", os.truncate, out + "/file", 0)
attempt("cut another", os.truncate, SECRET, 0)
attempt("read another", open, SECRET)
attempt("write another", open, SECRET, "w")
attempt("make another", open, SECRET + ".new", "w")
attempt("move another", os.rename, SECRET, out + "/secret")
attempt("list others", os.listdir, os.path.dirname(SECRET))
attempt("send a message", lambda: __import__("socket").socket() and None)
print(json.dumps(told))
"""


@pytest.mark.skipif("landlock" not in SANDBOXED, reason="this kernel has no Landlock")
@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_under_every_version_of_landlock_a_program_has_itself_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(confinement, "landlock_version", lambda: version)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    told = answers(tmp_path, "landlock", f"SECRET = {str(secret)!r}\n" + ITSELF)
    for deed in ("limit itself", "pin itself", "be nice", "touch", "chmod", "copy the times"):
        assert told.pop(deed) == "done", deed
    assert told.pop("mode") == 0, "that was granted without effect"
    assert told.pop("kill itself") == ("done" if version >= 6 else "EPERM")
    assert told.pop("cut its own") == ("done" if version >= 3 else "EPERM")
    assert set(told.values()) <= {"EPERM", "EACCES", "EXDEV"}, told
    assert secret.read_text() == "secret" and not (tmp_path / "secret.new").exists()
