"""What a trial has left on another machine, brought into its out/ under the limits of a local program's.

The endpoint is trusted with the names no more than a program is: only relative paths of plain names are taken, nothing
is overwritten, and no more is written than was listed and the limits allow. Afterwards the usual checks of out/ and the
judge's sandbox apply.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from environments.limits import Limits
from tasks.remote.endpoint import EndpointFault, RemoteEndpoint, RemoteFile
from tasks.sandbox import outputs
from tasks.sandbox.outputs import DISK_RESERVE
from tasks.sandbox.program import CannotStart
from tasks.system import interrupt
from tasks.system.redact import capped

TRIES = 3
"""Downloads of a file whose digest does not match."""
PROGRESS = outputs.PROGRESS.decode()


class NotTaken(Exception):
    """What was left cannot be kept; the message is the reason of the trial's crash."""


def fetch(endpoint: RemoteEndpoint, key: str, out: Path, limits: Limits) -> None:
    """Bring every file of a trial into `out`. Raises NotTaken; CannotStart where the disk is too small."""
    files = [file for file in endpoint.files(key) if file.path != PROGRESS]
    _check(files, limits)
    total, free = sum(file.bytes for file in files), shutil.disk_usage(out).free
    if free - total < DISK_RESERVE:
        raise CannotStart(
            f"the disk of {out} has {free // 2**20} MiB left, and the checkpoint takes {total // 2**20} MiB: free some"
        )
    for file in files:
        _fetch(endpoint, key, file, out)


def _check(files: Sequence[RemoteFile], limits: Limits) -> None:
    if len(files) > limits.out_files:
        raise NotTaken(f"left {len(files):,} files in out/, at most {limits.out_files:,}: see out_files in [limits]")
    if sum(file.bytes for file in files) > limits.out_gb * 2**30:
        raise NotTaken(f"left more than {limits.out_gb:g} GiB in out/: leave less, or raise out_gb in [limits]")
    seen: set[str] = set()
    for file in files:
        name = capped(repr(file.path), 100)
        parts = file.path.split("/")
        if not all(parts) or {".", ".."} & set(parts) or not file.path.isprintable() or "\\" in file.path:
            raise NotTaken(f"left {name} in out/, which is no plain relative path")
        if len(parts) > outputs.DEPTH or any(len(part.encode(errors="replace")) > 255 for part in parts):
            raise NotTaken(f"left {name} in out/, which is nested too deeply or too long")
        if file.bytes > limits.file_gb * 2**30:
            raise NotTaken(f"left {name} of more than {limits.file_gb:g} GiB: see file_gb in [limits]")
        if file.path in seen:
            raise NotTaken(f"left {name} twice")
        seen.add(file.path)


def _fetch(endpoint: RemoteEndpoint, key: str, file: RemoteFile, out: Path) -> None:
    target = out / file.path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except (FileExistsError, NotADirectoryError) as clash:
        raise NotTaken(f"left {capped(repr(file.path), 100)} in out/, which is a file and a folder") from clash
    with os.fdopen(descriptor, "w+b") as opened:

        def take(begin: int, chunks: Iterator[bytes]) -> None:
            opened.seek(begin)
            opened.truncate()
            for chunk in chunks:
                interrupt.check()
                if opened.tell() + len(chunk) > file.bytes:
                    raise EndpointFault(f"{endpoint.address.shown} sends more of {file.path!r} than it has listed")
                opened.write(chunk)

        for _ in range(TRIES):
            opened.truncate(0)
            endpoint.download(key, file.path, partial(opened.seek, 0, os.SEEK_END), take)
            opened.seek(0)
            if hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256:
                return
    raise EndpointFault(f"{endpoint.address.shown} sends {file.path!r} with another content than it has listed")
