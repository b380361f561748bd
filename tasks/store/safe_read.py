"""Reading files of a trial for MLflow or git: without following links, and redacted.

A link in out/ may point to any file of the user. So files are copied first, and only the copies are sent. Secrets in
copies are replaced; a binary file that holds one is not copied, since a replacement would break it.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path, PurePath

from environments.plugins import Refused
from environments.safe_open import open_below
from tasks.sandbox import outputs
from tasks.store.workspace import TrialDir
from tasks.system.redact import known_secrets, scrub, scrub_text, secrets_in, without_passwords

CHECKPOINT_BYTES = 200 * 10**6
CHECKPOINT_FILES = 500
SENT_NAME = re.compile(r"[\w.@+=,()\[\] -]+(/[\w.@+=,()\[\] -]+)*")
"""Paths that MLflow servers accept; a refused one would block its trial's record."""
NAME_BYTES, REASON_CHARACTERS = 512, 500
MODEL_FILE = "mlmodel"
"""MLflow loads a folder with a file of this name as a model, by code that the file names: none comes from a trial."""
OF_CAMPAIGN = ("report.html", "progress.png", "episode.gif", "results.tsv", "spec.toml")


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


def pack_trial(place: TrialDir, to: Path) -> None:
    """Copy what every trial shows."""
    for folder, path in ((place.workspace, place.config), (place.path, place.diff), (place.path, place.log)):
        _copy(folder, path.name, to)


def pack_campaign(folder: Path, to: Path) -> None:
    """Copy what a campaign shows, as far as it exists."""
    certificates = (path for path in (folder / "certificates").glob("*.*") if path.suffix in (".json", ".md"))
    for name in (*OF_CAMPAIGN, *(f"certificates/{path.name}" for path in certificates)):
        _copy(folder, name, to)
    specification = to / "spec.toml"
    if specification.is_file():  # it may hold MLflow's address, with a password that no variable holds
        specification.write_text(without_passwords(specification.read_text()))


def pack_folder(folder: Path, to: Path) -> str:
    """Copy the files of out/; returns what the record says of it: its name (`out/`) if all are copied."""
    name, sizes = f"{folder.name}/", outputs.sizes(folder)
    if not sizes:
        return f"not uploaded: {name} holds no file that can be read"
    if len(sizes) > CHECKPOINT_FILES or sum(sizes.values()) > CHECKPOINT_BYTES:
        return f"not uploaded: {name} holds more than {CHECKPOINT_FILES} files or {CHECKPOINT_BYTES / 1e6:.0f} MB"
    reasons = {one: _withheld(folder, one, to / folder.name) for one in sizes}
    withheld = [f"{scrub_text(one)[:80]!r}: {why}" for one, why in reasons.items() if why]
    return f"{name} without {'; '.join(withheld)}"[:REASON_CHARACTERS] if withheld else name


def copy_tree(folder: Path, to: Path, without: Sequence[str] = ()) -> list[str]:
    """Copy the files of a folder without links, over those that are there, to be edited; returns their names.

    Raises:
        Refused: one holds a secret: a redacted copy would not be what was judged.
        OSError: one cannot be read.
    """
    copied = [name for name in outputs.sizes(folder) if name not in without]
    for name in copied:
        secrets = _copy(folder, name, to)
        if secrets is None:
            raise OSError(f"{folder / name} cannot be read")
        if secrets:
            raise Refused(f"{folder / name} holds the secret {', '.join(sorted(secrets))}: it is not passed on")
    return copied


def _withheld(folder: Path, name: str, to: Path) -> str:
    """Copy one file of a folder; returns why it is not copied, empty if it is."""
    if scrub_text(name) != name or not SENT_NAME.fullmatch(name) or len(os.fsencode(name)) > NAME_BYTES:
        return "its name holds a secret, or what not every server takes"
    if PurePath(name).name.lower() == MODEL_FILE:
        return "MLflow would run the code that it names"
    secrets = _copy(folder, name, to)
    if secrets is None:
        return "it cannot be read"
    return "" if (to / name).exists() else f"it holds the secret {', '.join(sorted(secrets))}"


def _copy(folder: Path, name: str, to: Path) -> set[str] | None:
    """Copy a file that is reached through no link; the names of the secrets in it, None if it cannot be read.

    They are replaced in the copy; of a binary file there is none then.
    """
    if (file := open_below(folder, name)) is None:
        return None
    target = to / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with file, target.open("w+b") as copy:
        shutil.copyfileobj(file, copy)
        size = copy.tell()
        copy.flush()
        secrets = set(secrets_in(mmap(copy.fileno(), size), known_secrets()).values()) if size else set()
        executable = os.fstat(file.fileno()).st_mode & 0o111
    target.chmod(target.stat().st_mode | executable)
    if secrets and b"\0" in (data := target.read_bytes()):
        target.unlink()
    elif secrets:
        target.write_bytes(scrub(data))
    return secrets
