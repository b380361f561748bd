"""System call filters: the calls refused to an untrusted program, as classic BPF for seccomp(2).

Two filters are built from the same lists. With namespaces (`bwrap`) it refuses the calls that would undo them or that
no namespace covers; without (`landlock`) also those that reach other processes of the same user, and sockets.

Calls younger than these tables are answered by ENOSYS, and so is clone3, whose arguments a filter cannot read: the C
library falls back on older calls. Numbers: Linux's asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final

ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> its column in the tables, and its AUDIT_ARCH in the kernel."""
YOUNGEST = 450
"""The last system call that these tables know; the numbers of the x32 convention are far above it."""
NEW_NAMESPACES = 0x7E020080
"""The flags of clone that make a namespace."""
TERMINALS_AND_OWNERS = (0x5412, 0x541C, 0x8901, 0x8902)
"""Refused requests of ioctl: simulated typing (TIOCSTI, TIOCLINUX), and a file's owner, who is signalled when it is
ready (FIOSETOWN, SIOCSPGRP)."""
OF_FILE_SYSTEMS = tuple(kind << 8 for kind in (*b"fXvrno", 0x94, 0x97, 0xCF, 0xF5))
"""Kinds of ioctl requests that file systems answer: flags, project, version, verity of any file that can be opened."""
FCNTL = (*range(8), 9, 11, 16, 36, 37, 38, 1027, 1028, *range(1030, 1035))
"""Granted commands of fcntl: descriptors and their flags, locks of either kind, sizes of pipes, seals, and reading who
owns a file. All others are refused: leases and notices (another's open() waits for a lease), choosing who is signalled,
hints to the disk."""
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
STREAM, SEQPACKET = 1, 5
PRCTL = (4, 62)
"""Refused options of prctl. With PR_SET_DUMPABLE a program could hide its open files from its supervisor's user; with
PR_SCHED_CORE keep others off its processor cores."""

_ALWAYS = """
mount 165 40  umount2 166 39  pivot_root 155 41  chroot 161 51  move_mount 429 429  open_tree 428 428  fsopen 430 430
fsconfig 431 431  fsmount 432 432  fspick 433 433  mount_setattr 442 442  unshare 272 97  setns 308 268
ptrace 101 117  process_vm_readv 310 270  process_vm_writev 311 271  kcmp 312 272  pidfd_getfd 438 438
process_madvise 440 440  bpf 321 280  perf_event_open 298 241  keyctl 250 219  add_key 248 217  request_key 249 218
userfaultfd 323 282  io_uring_setup 425 425  io_uring_enter 426 426  io_uring_register 427 427
open_by_handle_at 304 265  name_to_handle_at 303 264  syslog 103 116  fanotify_init 300 262  inotify_init 253 -
inotify_init1 294 26  inotify_add_watch 254 27  memfd_secret 447 447
"""
"""What only a capability allows, such as setting the clock, is not among them: no program has one."""
_OTHERS_OF_THE_USER = """
shmget 29 194  shmat 30 196  shmctl 31 195  semget 64 190  semop 65 193  semtimedop 220 192  semctl 66 191
msgget 68 186  msgsnd 69 189  msgrcv 70 188  msgctl 71 187  mq_open 240 180  mq_unlink 241 181
migrate_pages 256 238  move_pages 279 239  pidfd_open 434 434
"""
_ONLY_ITSELF = """
prlimit64 302 261  sched_setscheduler 144 119  sched_setparam 142 118  sched_setattr 314 274
"""
"""Calls on a process, allowed on the caller only: their first argument must be 0."""
_OF_A_PROCESS = {"setpriority 141 140": 0, "ioprio_set 251 30": 1}
"""The same with the second argument; the first must say that it is a process, not a group or a user."""
_SIGNALS = """
kill 62 129  tkill 200 130  tgkill 234 131  rt_sigqueueinfo 129 138  rt_tgsigqueueinfo 297 240
pidfd_send_signal 424 424
"""
_AFFINITY = "sched_setaffinity 203 122"
"""Chooses the cores of a thread, which are those of its slot."""
_TRUNCATE = "truncate 76 45"
_MARKS = """
chmod 90 -  fchmod 91 52  fchmodat 268 53  chown 92 -  fchown 93 55  lchown 94 -  fchownat 260 54  utime 132 -
utimes 235 -  utimensat 280 88  futimesat 261 -  setxattr 188 5  lsetxattr 189 6  fsetxattr 190 7
removexattr 197 14  lremovexattr 198 15  fremovexattr 199 16
"""
"""Changes of files' modes, owners, times and attributes, which Landlock does not control."""
_TOUCHES = {"utimensat 280 88  futimesat 261 -": 2, "utime 132 -  utimes 235 -": 1}
"""Which argument points to the times; null means now."""
_CLONE, _CLONE3, _SOCKET, _SOCKETPAIR = "clone 56 220", "clone3 435 435", "socket 41 198", "socketpair 53 199"
_IOCTL, _PRCTL, _FCNTL = "ioctl 16 29", "prctl 157 167", "fcntl 72 25"

_LOAD, _AND, _EQUAL, _GREATER, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where a call's number, its convention and its arguments are in what a filter sees."""


def behind_namespaces(network: bool) -> bytes:
    """The filter for a program in its own namespaces; with `network` it shares the machine's network.

    Then Unix sockets are refused, since those without a file belong to the network namespace.
    """
    families = (INET, INET6, NETLINK) if network else (UNIX, INET, INET6, NETLINK)
    return _program(_common() + _sockets(families))


def without_namespaces(network: bool, landlock: int) -> bytes:
    """The filter for a program without namespaces, under this version of Landlock."""
    refused = _OTHERS_OF_THE_USER
    if landlock < 3:
        refused += _TRUNCATE
    if landlock < 6:  # only the filter keeps it from signalling others, so it can signal no process at all
        refused += _SIGNALS
    code = _common() + _sockets((INET, INET6, NETLINK) if network else ()) + _refuse(refused)
    # Setting a file's time to now is refused: it would work where writing is not allowed, and pathlib's touch() would
    # take its success for a file that is there.
    code += b"".join(_refuse(table, argument=times, values=(0,)) for table, times in _TOUCHES.items())
    # These succeed without effect: copying a file sets its mode and times, and must not fail for it.
    code += _refuse(_MARKS, 0) + _refuse(_ONLY_ITSELF, argument=0, unless=(0,))
    for table, process in _OF_A_PROCESS.items():
        code += _refuse(table, argument=0, unless=(process,)) + _refuse(table, argument=1, unless=(0,))
    return _program(code)


def _common() -> bytes:
    code = _refuse(_ALWAYS) + _refuse(_CLONE3, errno.ENOSYS)
    code += _refuse(_CLONE, argument=0, mask=NEW_NAMESPACES, unless=(0,))
    code += _refuse(_PRCTL, argument=0, values=PRCTL) + _refuse(_IOCTL, argument=1, values=TERMINALS_AND_OWNERS)
    # As on a file system, and on a kernel, that do not know them: programs that use them then do without.
    code += _refuse(_IOCTL, errno.ENOTTY, argument=1, mask=0xFF00, values=OF_FILE_SYSTEMS)
    code += _refuse(_FCNTL, errno.EINVAL, argument=1, unless=FCNTL)
    return code + _refuse(_AFFINITY, 0)  # without effect, as under a cpuset: who pins a thread does not fail for it


def _sockets(families: tuple[int, ...]) -> bytes:
    """Refuse all sockets but those of these families."""
    code = _refuse(_SOCKET, errno.EACCES, argument=0, unless=families)
    if UNIX not in families:  # a pair of datagram sockets can be pointed at any other; connected ones cannot
        code += _refuse(_SOCKETPAIR, errno.EACCES, argument=1, mask=0xF, unless=(STREAM, SEQPACKET))
    return code


def _program(code: bytes) -> bytes:
    """The whole filter: refuse foreign calling conventions and unknown calls, then `code`, then allow."""
    architecture = ARCHITECTURES[platform.machine()][1]
    head = _statement(_LOAD, _ARCHITECTURE) + _jump(_EQUAL, architecture, 1, 0) + _statement(_RETURN, _KILL)
    head += _statement(_LOAD, _NUMBER) + _jump(_GREATER, YOUNGEST, 0, 1) + _refusal(errno.ENOSYS)
    return head + code + _statement(_RETURN, _ALLOW)


def _refuse(
    table: str, number: int = errno.EPERM, *, argument: int | None = None, mask: int = 0,
    values: tuple[int, ...] = (), unless: tuple[int, ...] = (),
) -> bytes:  # fmt: skip
    """Refuse a table's calls; with `argument`, those in which its low half, or what `mask` leaves of it, is one of
    `values`, or is none of `unless`.
    """
    if argument is None:
        return _of_calls(table, _refusal(number))
    code = _statement(_LOAD, _ARGUMENTS + 8 * argument) + (_statement(_AND, mask) if mask else b"")
    code += b"".join(_jump(_EQUAL, value, 0, 1) + _refusal(number) for value in values)
    if not values:
        granted = (_jump(_EQUAL, value, len(unless) - place, 0) for place, value in enumerate(unless))
        code += b"".join(granted) + _refusal(number)
    return _of_calls(table, code + _statement(_LOAD, _NUMBER))  # for what follows


def _of_calls(table: str, code: bytes) -> bytes:
    """Run `code` for each of a table's calls, without those that this machine does not have."""
    column = 1 + ARCHITECTURES[platform.machine()][0]
    rows = [entry.split() for entry in table.replace("\n", "  ").split("  ") if entry.strip()]
    calls = [int(row[column]) for row in rows if row[column] != "-"]
    return b"".join(_jump(_EQUAL, call, 0, len(code) // 8) + code for call in calls)


def _refusal(number: int) -> bytes:
    return _statement(_RETURN, _ERRNO | number)


def _statement(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value)


def _jump(code: int, value: int, true: int, false: int) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)
