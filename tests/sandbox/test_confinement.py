"""Confinement: what bubblewrap and Landlock are told, and that a program then sees that and nothing else."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.plugins import Refused
from tasks.sandbox import confinement, isolation, seccomp
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.isolation import choose, why_not, working
from tasks.system.home import home
from tests.support.levels import SANDBOXED, WORKING
from tests.support.sandboxed import answers

SYSTEM_GPU = [
    path for path in (Path("/dev/kmsg"), Path("/dev/loop0"), Path("/dev/hwrng"), Path("/dev/fuse")) if path.exists()
]
"""Devices that are no GPU's, but are as absent as one in a sandbox."""


@pytest.mark.skipif(not SYSTEM_GPU, reason="this machine's /dev holds only what every program gets")
@pytest.mark.skipif("bwrap" not in SANDBOXED, reason="bubblewrap does not work here")
@pytest.mark.parametrize(("asked", "driver"), [(False, True), (True, False), (True, True)])
def test_a_gpu_is_there_only_when_it_is_given_and_proc_is_open_only_to_a_driver_that_names_threads_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool, driver: bool
) -> None:
    monkeypatch.setattr(confinement, "GPU_DEVICES", tuple(path.name for path in SYSTEM_GPU))
    monkeypatch.setattr(confinement, "NAMES_THREADS", str(SYSTEM_GPU[0]) if driver else "/dev/nvidia*")
    code = (
        "import json, threading\n"
        "def write():\n"
        "    for path in (f'/proc/self/task/{threading.get_native_id()}/comm', '/proc/1/comm', '/proc/1/oom_score_adj',\n"
        "                 '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger'):\n"
        "        try: open(path, 'w').write('0')\n"
        "        except OSError: written.append(False)\n"
        "        else: written.append(True)\n"
        "written = []\n"
        "thread = threading.Thread(target=write)\n"
        "thread.start()\n"
        "thread.join()\n"
        f"print(json.dumps([__import__('os').path.exists({str(SYSTEM_GPU[0])!r}), *written]))\n"
    )
    written = answers(tmp_path, "bwrap", code, view=VisiblePaths((), (), gpu=asked))
    assert written == [asked, asked and driver, False, False, False, False]


def test_no_view_holds_the_private_keys_of_the_machine(tmp_path: Path) -> None:
    given = [Path(path) for path, _ in confinement.landlock(VisiblePaths((), (), network=True), tmp_path)]
    for private in ("/etc/ssl/private", "/etc/pki/tls/private", "/etc/shadow", "/etc/ssh"):
        assert not [path for path in given if Path(private).is_relative_to(path)]


# Isolation: what is found out about this machine is true, and a machine that only looks confined is seen through.


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    """Findings are kept for the life of a process; what a test finds is its own."""
    why_not.cache_clear()
    yield
    why_not.cache_clear()


def test_auto_is_the_best_level_that_works_and_a_level_that_works_can_be_asked_for() -> None:
    assert choose("auto") == working()[0] and working()[-1] == "none"
    assert [choose(level) for level in working()] == working()
    with pytest.raises(Refused, match=r"'chroot'.* auto, bwrap, landlock, none"):
        choose("chroot")


UNCONFINED = "last = len(sys.argv) - sys.argv[::-1].index('--')\nos.execv(sys.argv[last], sys.argv[last:])\n"
ONLINE = f"os.execv({shutil.which('bwrap')!r}, [word for word in sys.argv if word != '--unshare-net'])\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("sys.exit('bwrap: no permission to make a namespace')", "bwrap: no permission to make a namespace"),
        ("sys.exit(0)", "a program run at it ended with status 0"),
        (UNCONFINED, "it can read files that it was not given"),
        pytest.param(
            ONLINE, "it can reach the network",
            marks=pytest.mark.skipif("bwrap" not in WORKING, reason="no network namespace to be taken out"),
        ),
    ],
)  # fmt: skip
def test_a_bubblewrap_that_does_not_confine_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    """One that fails, never runs the program, runs it without a sandbox, or leaves the network open."""
    (tmp_path / "bwrap").write_text(f"#!{sys.executable}\nimport os, sys\n{script}")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert why_not("bwrap") == why


def test_on_a_kernel_without_landlock_and_a_processor_without_a_filter_no_sandbox_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(confinement, "landlock_version", lambda: 0)
    with pytest.raises(Refused, match=r"'bwrap'.*bubblewrap is not installed"):
        choose("bwrap")
    assert choose("auto") == "none" and "this kernel has no Landlock" in why_not("landlock")
    why_not.cache_clear()
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "no system call filter for this kind of processor" in why_not("bwrap")


@pytest.mark.parametrize("listed", [".", "night-1/trials", "..", "/proc/self", "~/.ssh", "/nowhere"])
def test_what_would_show_other_trials_processes_or_keys_or_is_not_there_is_not_given(listed: str) -> None:
    """As `readable` of an environment, or as the home; without a sandbox there is nothing to give."""
    path = home() / Path(listed).expanduser()
    with pytest.raises(Refused, match="readable: "):
        isolation.check_given("landlock", home(), (path,))
    isolation.check_given("none", home(), (path,))
    isolation.check_given("bwrap", home(), ())
    with pytest.raises(Refused, match=r"/usr/share/nightshift.* /usr,"):
        isolation.check_given("bwrap", Path("/usr/share/nightshift"), ())


# System call filters: their numbers are the kernel's, and programs behind them have themselves and nobody else.


SOURCE = Path(seccomp.__file__).read_text()
TABLE = {
    name: (int(x86_64), None if aarch64 == "-" else int(aarch64))
    for name, x86_64, aarch64 in re.findall(r"\b([a-z]\w+) (\d+) (\d+|-)(?=\s|\")", SOURCE)
}
"""Every call that the module names: its numbers on x86_64 and aarch64."""


@pytest.mark.parametrize(
    ("column", "header"),
    [(0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")],
)
def test_the_numbers_are_those_of_the_kernels_headers(column: int, header: str) -> None:
    if not Path(header).is_file():
        pytest.skip(f"no {header}: the headers of Linux are not installed")
    text = Path(header).read_text()
    stated = {call: int(at) for call, at in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)}
    for call, numbers in TABLE.items():
        here = numbers[column]
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
attempt("pin itself", os.sched_setaffinity, 0, os.sched_getaffinity(0))
attempt("pin its keeper", os.sched_setaffinity, keeper, os.sched_getaffinity(0))
attempt("touch", lambda: pathlib.Path(out, "file").touch())
attempt("chmod", os.chmod, out + "/file", 0o777)
attempt("copy the times", lambda: shutil.copystat(sys.executable, out + "/file"))
told["mode"] = os.stat(out + "/file").st_mode & 0o111
attempt("cut its own", os.truncate, out + "/file", 0)
attempt("cut another", os.truncate, SECRET, 0)
attempt("read another", open, SECRET)
attempt("write another", open, SECRET, "w")
attempt("list others", os.listdir, os.path.dirname(SECRET))
attempt("move another", os.rename, SECRET, out + "/secret")
attempt("send a message", lambda: __import__("socket").socket() and None)
print(json.dumps(told))
"""


@pytest.mark.skipif("landlock" not in SANDBOXED, reason="this kernel has no Landlock")
@pytest.mark.parametrize("version", range(1, confinement.landlock_version() + 1))
def test_under_every_version_of_landlock_a_program_has_itself_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(confinement, "landlock_version", lambda: version)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    told = answers(tmp_path, "landlock", f"SECRET = {str(secret)!r}\n" + ITSELF, view=VisiblePaths((), ()))
    for deed in ("limit itself", "pin itself", "pin its keeper", "touch", "chmod", "copy the times"):
        assert told.pop(deed) == "done", deed
    assert told.pop("mode") == 0, "that was granted without effect"
    assert told.pop("kill itself") == ("done" if version >= 6 else "EPERM")
    assert told.pop("cut its own") == ("done" if version >= 3 else "EPERM")
    assert set(told.values()) <= {"EPERM", "EACCES", "EXDEV"}, told
    assert secret.read_text() == "secret"
