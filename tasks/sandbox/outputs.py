"""The files that an untrusted program left in out/: their size, whether they can be kept, and their digest.

The tree may hold links to anywhere, pipes and folders nested without end, and may change while it is read: at the
weakest isolation a process may have survived. So every entry is reached from the descriptor of its folder, no link is
followed, only regular files are opened, and an entry that is gone when it is read is skipped. (`os.fwalk` would wait
for ever where a pipe takes the place of a folder.) Nothing that a program leaves raises an exception; only a fault of
the machine does.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from environments.limits import Limits
from environments.safe_open import open_file, open_folder, tolerantly
from tasks.system import interrupt
from tasks.system.redact import capped

PROGRESS = b"progress.jsonl"
"""The reports, at the top of out/: not part of the checkpoint."""
DISK_RESERVE = 256 * 2**20
"""Bytes of the disk that programs leave free."""
DEPTH = 64
"""Deepest nesting of folders; each one that is being read holds a descriptor."""
SHOWN_CHARACTERS = 100


@dataclass(frozen=True)
class _Entry:
    """One entry of the tree; its folder's descriptor is open until the next entry is requested."""

    path: bytes
    """Relative to out/."""
    name: str
    folder: int
    status: os.stat_result

    @property
    def shown(self) -> str:
        """A name that a program chose, safe to print: escaped and shortened."""
        return capped(repr(os.fsdecode(self.path)), SHOWN_CHARACTERS)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)


def excess(out: Path, limits: Limits, besides: int = 0) -> str | None:
    """Why out/, with `besides` more bytes, exceeds the limits or has folders that cannot be read; None when it does
    not. Of an entry its length or its disk usage counts: a sparse file costs its reader its length.
    """
    size = 0
    for files, entry in enumerate(_walk(out), 1):
        size += max(entry.status.st_size, entry.status.st_blocks * 512)
        if closed := _closed(entry):
            return closed
        if files > limits.out_files:
            most = f"{limits.out_files:,} files and folders"
            return f"left more than {most} in out/: leave fewer, or raise out_files in [limits]"
        if size > limits.out_gb * 2**30 - besides:
            return f"left more than {limits.out_gb:g} GiB in out/: leave less, or raise out_gb in [limits]"
    return None


def fault(out: Path) -> str | None:
    """Why this tree cannot be kept, copied and judged as a checkpoint; None when it can."""
    if out.is_symlink() or not out.is_dir():
        return "replaced the folder out/: leave it where it is, and the checkpoint in it"
    return next((why for entry in _walk(out) if (why := _closed(entry) or _fault(entry))), None)


def sizes(folder: Path) -> dict[str, int]:
    """The size of each regular file of a tree in bytes, by its path there; none where the folder cannot be read."""
    return {os.fsdecode(entry.path): entry.status.st_size for entry in _walk(folder) if entry.is_file}


def checkpoint(out: Path) -> str | None:
    """The digest of all files but the reports; None when there are no regular ones."""
    return digest(out, without=PROGRESS) if newest(out) else None


def digest(folder: Path, without: bytes = b"") -> str:
    """SHA-256 over the names and contents of a tree's files and the targets of its links, `without` one name."""
    total = hashlib.sha256()
    for entry in _walk(folder):
        if entry.path != without and (content := _content(entry)):
            total.update(entry.path + b"\0" + content.encode() + b"\n")
    return total.hexdigest()


def newest(out: Path) -> float:
    """Modification time of the newest checkpoint file, as Unix time; 0 when there is none."""
    files = (entry for entry in _walk(out) if entry.is_file and entry.path != PROGRESS)
    return max((entry.status.st_mtime for entry in files), default=0.0)


def _closed(entry: _Entry) -> str | None:
    """Why a content is not read. Its permissions decide, though root could read it all the same."""
    mode = stat.S_IMODE(entry.status.st_mode)
    if entry.path.count(b"/") >= DEPTH:
        return f"nested folders deeper than {DEPTH} in out/ ({entry.shown}): keep the tree flat"
    if mode & (needed := 0o500 if stat.S_ISDIR(entry.status.st_mode) else 0o400) != needed:
        return f"left {entry.shown} in out/ with permissions {mode:03o}: let its owner read it"
    return None


def _fault(entry: _Entry) -> str | None:
    mode, left = entry.status.st_mode, f"left {entry.shown} in out/"
    try:
        entry.path.decode()
    except UnicodeDecodeError:
        return f"{left}, whose name is not UTF-8: give it a plain name"
    if stat.S_ISDIR(mode):
        return None
    if stat.S_ISLNK(mode):
        return _astray(entry)
    if not entry.is_file:
        return f"{left}, which is a pipe, a socket or a device: leave plain files and folders there, nothing else"
    if entry.status.st_nlink > 1:
        return f"{left}, which is hard-linked, so another name may change it: save a copy"
    return None


def _astray(entry: _Entry) -> str | None:
    """Why a link may lead out of out/. `..` is allowed only at the beginning of its target: a name before it may be a
    link itself.
    """
    target = tolerantly(os.readlink, entry.name, dir_fd=entry.folder) or ""  # by now it may be something else
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    if target.startswith("/") or up > entry.path.count(b"/") or ".." in parts[up:]:
        shown = f"{entry.shown} -> {target[:SHOWN_CHARACTERS]!r}"
        return f"left a link in out/ that may lead out of it ({shown}): save a copy of what it points to"
    return None


def _content(entry: _Entry) -> str | None:
    """SHA-256 of a file's content, or a link's target; None for other entries and those that cannot be read."""
    interrupt.check()
    if stat.S_ISLNK(entry.status.st_mode):
        target = tolerantly(os.readlink, os.fsencode(entry.name), dir_fd=entry.folder)
        return None if target is None else f"-> {target.hex()}"
    file = tolerantly(open_file, entry.name, entry.folder) if entry.is_file else None
    if file is None:
        return None
    with file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _walk(folder: Path | str, around: int | None = None, within: bytes = b"", level: int = 1) -> Iterator[_Entry]:
    """Every entry down to DEPTH, a folder before its content, sorted by name. Each folder is entered from the one
    `around` it: a path of thousands of names is too long for any system call, and `..` of a folder that was moved
    leads elsewhere. A walk that is abandoned closes its folders.
    """
    opened = tolerantly(open_folder, folder, around)
    if opened is None:  # it is no folder any more, or cannot be read
        return
    try:
        for name in sorted(os.listdir(opened), key=os.fsencode):  # noqa: PTH208 (of a descriptor)
            status = tolerantly(os.stat, name, dir_fd=opened, follow_symlinks=False)
            if status is None:
                continue
            path = within + os.fsencode(name)
            yield _Entry(path, name, opened, status)
            if stat.S_ISDIR(status.st_mode) and level <= DEPTH:
                yield from _walk(name, opened, path + b"/", level + 1)
    finally:
        os.close(opened)
