"""System call filters: their numbers are the kernel's, and programs behind them have themselves and nobody else."""

from __future__ import annotations

import platform
import re
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
