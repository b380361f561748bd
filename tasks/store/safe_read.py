"""Reading files of a trial for MLflow or git: without following links, and redacted.

A link in out/ may point to any file of the user. So files are copied first, and only the copies are sent. Secrets in
copies are replaced; a binary file that holds one is not copied, since a replacement would break it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path, PurePath
from typing import BinaryIO

from environments.plugins import Refused
from environments.safe_open import open_file, open_folder
from tasks.store.workspace import TrialDir
from tasks.system.redact import Scrubber, scrub_text, without_passwords

CHECKPOINT_BYTES = 200 * 10**6
CHECKPOINT_FILES = 500
CHUNK_BYTES = 2**20
SENT_NAME = re.compile(r"[\w.@+=,()\[\] -]+(/[\w.@+=,()\[\] -]+)*")
"""Paths that MLflow servers accept; a refused one would block its trial's record."""
NAME_BYTES, REASON_CHARACTERS = 512, 500
MODEL_FILE = "mlmodel"
"""MLflow loads a folder with a file of this name as a model, by code that the file names: none comes from a trial."""
OF_CAMPAIGN = ("report.html", "timeline.json", "progress.png", "episode.gif", "results.tsv", "spec.toml")


def open_below(folder: Path, name: str) -> BinaryIO | None:
    """A regular file below a folder, reached through no link; None if there is none or it cannot be read."""
    *above, last = PurePath(name).parts
    with ExitStack() as stack, suppress(OSError):
        within = open_folder(folder)
        stack.callback(os.close, within)
        for part in above:
            within = open_folder(part, within)
            stack.callback(os.close, within)
        return open_file(last, within)
    return None


@contextmanager
def parcel(folder: Path) -> Iterator[Path]:
    """A temporary directory in `folder` for the copies; also removes one that a kill left."""
    path = folder / ".outgoing"
    shutil.rmtree(path, ignore_errors=True)
    if folder.is_dir():
        path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def pack_trial(place: TrialDir, log: str, to: Path) -> None:
    """Copy what every trial shows; `log` is the shown part of its log."""
    for folder, path in ((place.workspace, place.config), (place.path, place.diff)):
        if file := open_below(folder, path.name):
            _copy(file, to / path.name, Scrubber())
    if log:
        (to / "log.txt").write_text(log)


def pack_campaign(folder: Path, to: Path) -> None:
    """Copy what a campaign shows, as far as it exists."""
    certificates = (path for path in (folder / "certificates").glob("*.*") if path.suffix in (".json", ".md"))
    for name in (*OF_CAMPAIGN, *(f"certificates/{path.name}" for path in certificates)):
        if file := open_below(folder, name):
            _copy(file, to / name, Scrubber())
    specification = to / "spec.toml"
    if specification.is_file():  # it may hold MLflow's address, with a password that no variable holds
        specification.write_text(without_passwords(specification.read_text()))


def pack_folder(folder: Path, to: Path) -> str:
    """Copy the files of out/; returns what the record says of it: its name (`out/`) if all are copied."""
    name = f"{folder.name}/"
    try:
        files = list(islice(_files(folder), CHECKPOINT_FILES + 1))
        size = sum(path.lstat().st_size for path in files)
    except OSError as fault:
        return f"not uploaded: {name} cannot be read: {fault.strerror}"
    if len(files) > CHECKPOINT_FILES or size > CHECKPOINT_BYTES:
        return f"not uploaded: {name} holds more than {CHECKPOINT_FILES} files or {CHECKPOINT_BYTES / 1e6:.0f} MB"
    withheld = [why for path in sorted(files) if (why := _withheld(folder, path, to / folder.name))]
    return f"{name} without {'; '.join(withheld)}"[:REASON_CHARACTERS] if withheld else name


def copy_tree(folder: Path, to: Path, without: Sequence[str] = ()) -> list[str]:
    """Copy the files of a folder without links, over those that are there, to be edited; returns their names.

    Raises:
        Refused: one holds a secret: a redacted copy would not be what was judged.
        OSError: one cannot be read.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in _files(folder))
    copied = [name for name in names if name not in without]
    for name in copied:
        if (file := open_below(folder, name)) is None:
            raise OSError(f"{folder / name} cannot be read")
        executable, scrubber = os.fstat(file.fileno()).st_mode & 0o111, Scrubber()
        _copy(file, to / name, scrubber)
        if scrubber.found:
            raise Refused(f"{folder / name} holds the secret {', '.join(sorted(scrubber.found))}: it is not passed on")
        (to / name).chmod((to / name).stat().st_mode | executable)
    return copied


def _files(folder: Path) -> Iterator[Path]:
    """The regular files of a tree. Raises OSError where it is none, or cannot be read."""
    if folder.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "it is a link")
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)


def _withheld(folder: Path, path: Path, to: Path) -> str:
    """Copy one file of a folder; returns which it is and why it is not copied, empty if it is."""
    name = path.relative_to(folder).as_posix()
    shown, scrubber = repr(scrub_text(name)[:80]), Scrubber()
    if scrub_text(name) != name or not SENT_NAME.fullmatch(name) or len(os.fsencode(name)) > NAME_BYTES:
        return f"{shown}: its name holds a secret, or what not every server takes"
    if path.name.lower() == MODEL_FILE:
        return f"{shown}: MLflow would run the code that it names"
    if (file := open_below(folder, name)) is None:
        return f"{shown}: it cannot be read"
    is_whole = _copy(file, to / name, scrubber)
    return "" if is_whole else f"{shown}: it holds the secret {', '.join(sorted(scrubber.found))}"


def _copy(file: BinaryIO, target: Path, scrubber: Scrubber) -> bool:
    """Copy a file at its present length, redacted; False for a binary file with secrets, which is not copied."""
    is_binary, left = False, os.fstat(file.fileno()).st_size
    target.parent.mkdir(parents=True, exist_ok=True)
    with file, target.open("wb") as copy:
        while chunk := file.read(min(CHUNK_BYTES, left)):
            left -= len(chunk)
            is_binary = is_binary or b"\0" in chunk
            copy.write(scrubber.feed(chunk))
        copy.write(scrubber.flush())
    if is_broken := is_binary and bool(scrubber.found):
        target.unlink()
    return not is_broken
