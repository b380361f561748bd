"""What a trial has left on another machine, brought into its out/ under the limits of a local program's.

The endpoint is trusted with the names no more than a program is: only relative paths of plain names are taken, nothing
is overwritten, and no more is written than was listed and the limits allow. Afterwards the usual checks of out/ and the
judge's sandbox apply.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from environments.limits import Limits
from tasks.remote.endpoint import EndpointFault, RemoteEndpoint, RemoteFile, TrialFault
from tasks.sandbox import outputs
from tasks.system.redact import capped

PROGRESS = outputs.PROGRESS.decode()


def fetch(endpoint: RemoteEndpoint, key: str, out: Path, limits: Limits) -> None:
    """Bring every file of a trial into `out`. Raises TrialFault, EndpointFault; OSError: a full disk."""
    files = [file for file in endpoint.files(key) if file.path != PROGRESS]
    _check(files, limits)
    if shutil.disk_usage(out).free - sum(file.bytes for file in files) < outputs.DISK_RESERVE:
        raise OSError(errno.ENOSPC, "what a trial has left on another machine does not fit on this disk", str(out))
    for file in files:
        _fetch(endpoint, key, file, out)
    if reason := outputs.fault(out) or outputs.excess(out, limits):
        raise TrialFault(reason)


def _check(files: Sequence[RemoteFile], limits: Limits) -> None:
    """Refuse, before anything is sent, what is too much or would lie outside of out/."""
    if len(files) > limits.out_files:
        raise TrialFault(f"left {len(files):,} files in out/, at most {limits.out_files:,}: see out_files in [limits]")
    if sum(file.bytes for file in files) > limits.out_gb * 2**30:
        raise TrialFault(f"left more than {limits.out_gb:g} GiB in out/: leave less, or raise out_gb in [limits]")
    for file in files:
        parts = file.path.split("/")
        if not all(parts) or {".", ".."} & set(parts) or not file.path.isprintable() or "\\" in file.path:
            raise TrialFault(f"left {_shown(file)} in out/, which is no plain relative path")
        if file.bytes > limits.file_gb * 2**30:
            raise TrialFault(f"left {_shown(file)} of more than {limits.file_gb:g} GiB: see file_gb in [limits]")


def _fetch(endpoint: RemoteEndpoint, key: str, file: RemoteFile, out: Path) -> None:
    target = out / file.path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        opened = target.open("x+b")
    except OSError as fault:  # it is there already, is a file and a folder, or has too long a name
        if fault.errno == errno.ENOSPC:
            raise
        raise TrialFault(f"left {_shown(file)} in out/, which cannot be written: {fault.strerror}") from fault
    with opened:
        endpoint.download(key, file, opened)
        opened.seek(0)
        if hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
            raise EndpointFault(f"{endpoint.address.shown} sends {file.path!r} with another content than it has listed")


def _shown(file: RemoteFile) -> str:
    return capped(repr(file.path), 100)
