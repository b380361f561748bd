"""The files, devices and network that a program may use, as arguments for bubblewrap and rules for Landlock.

bwrap      own namespaces (files, processes, network, IPC, host name), made by bubblewrap: paths that were not given do
           not exist. Started by root, the program runs as `nobody`, else in a user namespace.
landlock   the kernel refuses files, signals and sockets (Landlock and a system call filter), and all capabilities are
           dropped. Other processes are visible, and the program runs as the engine's user.
none       the engine's user, with limits but without a sandbox.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

from environments import Environment, plugins
from environments.recipe import DATA
from tasks.sandbox import seccomp
from tasks.sandbox.interpreter import OWN, Interpreter, interpreter_of
from tasks.sandbox.supervisor import FILTER_DESCRIPTOR, LANDLOCK_CREATE_RULESET

Level = Literal["bwrap", "landlock", "none"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Best first."""
NOBODY = 65534
"""The user that programs run as when the engine is root, at level bwrap."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = (
    "alternatives", "ca-certificates", "crypto-policies", "fonts", "group", "hosts", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "localtime", "magic", "mime.types", "nsswitch.conf", "passwd", "pki/ca-trust", "pki/tls/cert.pem",
    "pki/tls/certs", "protocols", "services", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
"""Parts of /etc that a program may read: for libraries, certificates and names; no service's configuration."""
NETWORK_SETTINGS = ("resolv.conf", "gai.conf", "host.conf")
MACHINE = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup/cpu.max")
PROCESSES = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/filesystems", "/proc/version")
HOME = "/tmp/home"
"""Home of a program at level bwrap. Not /tmp itself: its writable folders may be below that, and homes are emptied."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
GPU_DEVICES = ("nvidia*", "nvidia-caps/*", "dri/*", "kfd", "dxg")
"""GPU devices below /dev: NVIDIA's (as its container toolkit binds them), AMD's DRI and KFD, WSL's DXG."""
NAMES_THREADS = "/dev/nvidia*"
GPU_FACTS = ("/sys", "/proc/driver/nvidia", "/etc/nvidia", "/etc/OpenCL", "/etc/vulkan")


@dataclass(frozen=True)
class VisiblePaths:
    """What one program is given to see and to change, besides the system and the interpreter."""

    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    network: bool = False
    gpu: bool = False
    python: Interpreter = OWN
    """What `python` stands for in its command line."""
    shared: tuple[Path, ...] = ()
    """What it may change, too, and others hold as well: not counted against its limits."""


def plan(
    level: Level, view: VisiblePaths, argv: list[str], *, cwd: Path, scratch: Path, scratch_bytes: int
) -> dict[str, Any]:
    """The part of the supervisor's plan that confines: its command line, the rules of Landlock, the filter, and
    `inner`, the depth below the supervisor at which the program's own processes begin.
    """
    if level == "none":
        return {"argv": argv, "inner": 1, "landlock": None, "filter": ""}
    if platform.machine() not in seccomp.ARCHITECTURES:
        raise OSError("there is no system call filter for this kind of processor")
    if level == "bwrap":
        command = bwrap(view, cwd=cwd, scratch_bytes=scratch_bytes) + argv
        filter = seccomp.behind_namespaces(view.network)
        return {"argv": command, "inner": 3, "landlock": None, "filter": filter.hex()}
    if not (version := landlock_version()):
        raise OSError("this kernel has no Landlock (Linux 5.13 or later, CONFIG_SECURITY_LANDLOCK, lsm=landlock)")
    rules = {
        "version": version, "rules": landlock(view, scratch), "network": view.network,
        "listed": [str(folder) for folder in view.python.listed(view.readable)],
    }  # fmt: skip
    filter = seccomp.without_namespaces(view.network, version)
    return {"argv": argv, "inner": 1, "landlock": rules, "filter": filter.hex()}


def bwrap(view: VisiblePaths, *, cwd: Path, scratch_bytes: int) -> list[str]:
    """The command line of bubblewrap up to the program's own: what is not named here does not exist."""
    root = os.geteuid() == 0
    if (bubblewrap := shutil.which("bwrap")) is None:
        raise OSError("bubblewrap is not installed (Debian, Ubuntu, Fedora: package bubblewrap)")
    command = [bubblewrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", *([] if view.network else ["--unshare-net"])]
    if not root:
        command += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    command += ["--proc", "/proc", "--dev", "/dev", *_memory("/dev/shm", scratch_bytes)]
    gpu = _gpu_devices() if view.gpu else []
    command += [*_folders_above(gpu), *_bind("--dev-bind", gpu)]
    command += ["--remount-ro", "/dev", *_memory("/tmp", scratch_bytes), "--perms", "0777", "--dir", HOME]
    seen = _seen(view)
    command += _folders_above((*seen, *view.writable, *view.shared))
    command += _bind("--ro-bind", (*_present(SYSTEM), *seen))
    command += _bind("--bind", (*view.writable, *view.shared))
    # In /proc a process may raise its own standing when memory is short. NVIDIA's driver, from 570 on, writes the names
    # of its threads there, and gives up where it may not (CUDA error 304).
    closed = [] if any(device.match(NAMES_THREADS) for device in gpu) else ["--remount-ro", "/proc"]
    command += [*closed, "--remount-ro", "/"]
    command += ["--chdir", str(cwd), "--seccomp", str(FILTER_DESCRIPTOR), "--cap-drop", "ALL"]
    if not root:
        return [*command, "--"]
    for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):  # needed to give up root
        command += ["--cap-add", capability]
    setpriv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*command, "--", *setpriv, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"]


def landlock(view: VisiblePaths, scratch: Path) -> list[tuple[str, bool]]:
    """What a program may open: paths, each with whether it may write there."""
    seen = _present((*SYSTEM, *PROCESSES)) + _seen(view)
    written = [*_present(DEVICES), *view.writable, *view.shared, scratch, *(_gpu_devices() if view.gpu else ())]
    return [(str(path), False) for path in seen] + [(str(path), True) for path in written]


def landlock_version() -> int:
    """The kernel's Landlock version; 0 without Landlock."""
    return max(int(ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)), 0)


def owner(level: Level) -> int | None:
    """The user that a program's writable folders must belong to; None when they may stay as they are."""
    return NOBODY if level == "bwrap" and os.geteuid() == 0 else None


def outside(environment: Environment) -> tuple[Path, ...]:
    """The paths outside of its folder that an environment gives to its program and to its judge's."""
    ours = plugins.folder("environments.judges")
    paths = map(Path, (*environment.readable, *environment.judge.reads))
    return tuple(path for path in paths if path.is_absolute() and not path.is_relative_to(ours))


def of(environment: Environment, readable: tuple[Path, ...], writable: tuple[Path, ...]) -> VisiblePaths:
    """The view of an environment's program: what is given here, and what the environment lists."""
    made = (environment.prepared / DATA,) if environment.prepared else ()
    listed = (environment.folder / path for path in environment.readable)
    own = interpreter_of(environment.python)
    theirs = () if own is OWN else own.parts  # of our own Python, all see these
    seen = dict.fromkeys((*readable, *made, *listed, *theirs, *own.editable))
    return VisiblePaths(tuple(seen), writable, environment.network, environment.device != "cpu", own)


def _seen(view: VisiblePaths) -> list[Path]:
    settings = [f"/etc/{name}" for name in SETTINGS + (NETWORK_SETTINGS if view.network else ())]
    facts = GPU_FACTS if view.gpu else ()
    return [*_present((*settings, *MACHINE)), *OWN.parts, *view.readable, *_present(facts)]


def _gpu_devices() -> list[Path]:
    return [path for pattern in GPU_DEVICES for path in sorted(Path("/dev").glob(pattern)) if not path.is_dir()]


def _present(paths: Iterable[str]) -> list[Path]:
    return [path for path in map(Path, paths) if path.exists()]


def _folders_above(paths: Iterable[Path]) -> list[str]:
    """Create the parent folders of these paths: those that bubblewrap creates can be entered by their owner only. In
    /tmp, an ordinary user's program is their owner, and may not write there either.
    """
    above = dict.fromkeys(folder for path in paths for folder in accumulate(path.parts[:-1], os.path.join))
    made = [folder for folder in above if folder not in ("/", "/tmp", "/dev", "/dev/shm", "/proc")]
    return [word for folder in made for word in ("--perms", "0555", "--dir", folder)]


def _memory(path: str, size: int) -> list[str]:
    """A folder in memory, writable for all."""
    return ["--perms", "1777", "--size", str(size), "--tmpfs", path]


def _bind(option: str, paths: Iterable[Path]) -> list[str]:
    return [word for path in paths for word in (option, str(path), str(path))]


def give(folder: Path, level: Level) -> None:
    """Let a program of that level write into a folder."""
    if (user := owner(level)) is not None:
        os.chown(folder, user, user)
