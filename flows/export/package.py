"""A champion as it is uploaded: its exported folder, listed, hashed and searched for secrets."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from environments.plugins import Refused
from flows.export.folder import certificate_of, champion, export
from flows.export.front_matter import front_matter
from flows.export.versions import Version, gain_of
from tasks.store.ledger import Ledger
from tasks.system import file_trees
from tasks.system.redact import Scrubber, known_secrets, scrub_text
from tasks.trial import Trial

CARD = "README.md"
NOT_ALLOWED = frozenset({".git", ".cache"})
"""Folders that the hub takes no files in."""
KEYS = {
    "a Hugging Face token": rb"hf_[A-Za-z0-9]{30,}",
    "an API key": rb"sk-(?:proj-|ant-)?[A-Za-z0-9_-]{32,}",
    "a GitHub token": rb"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{40,}",
    "an AWS key": rb"AKIA[0-9A-Z]{16}",
    "a private key": rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
}
"""How keys begin that this process need not know, such as one in a file of the environment."""
KEY = re.compile(b"|".join(rb"(?<![A-Za-z0-9])(?:%s)" % form for form in KEYS.values()))
CHUNK, OVERLAP = 2**20, 256


@dataclass(frozen=True)
class Package:
    folder: Path
    files: dict[str, int]
    """Size in bytes, by path."""
    left_out: dict[str, str]
    """Why a file is not uploaded, by path."""
    version: Version
    """Named by its campaign; the repository may need another name."""

    @property
    def card(self) -> str:
        return (self.folder / CARD).read_text()

    @property
    def size(self) -> int:
        return sum(self.files.values())


def checked_champion(ledger: Ledger, uncertified: bool) -> Trial:
    """The champion. Refused if there is none, or it is not certified and need be."""
    trial = champion(ledger)
    if certificate_of(ledger, trial) is None and not uncertified:
        name = ledger.campaign.name
        raise Refused(
            f"trial {trial.number} of campaign {name!r} is not certified: certify it (nightshift certify {name}), or "
            "upload it as it is with --uncertified"
        )
    return trial


@contextmanager
def packed(ledger: Ledger, uncertified: bool = False) -> Iterator[Package]:
    """The champion's package, in a temporary folder.

    Raises:
        Refused: there is no champion to upload, it cannot be exported, or a file holds a known secret.
        OSError: the folder cannot be written.
    """
    trial = checked_champion(ledger, uncertified)
    certificate, campaign = certificate_of(ledger, trial), ledger.campaign.name
    scratch = Path(tempfile.mkdtemp(prefix="nightshift-upload-"))
    try:
        folder = export(ledger, scratch / "champion")
        card = folder / CARD
        name = f"{campaign}, trial {trial.number}"
        card.write_text(front_matter(ledger.environment, trial, certificate, name) + card.read_text())
        files, left_out = _listed(folder)
        digest = _digest(folder, files)
        version = Version(campaign, campaign, str(trial.number), gain_of(certificate), f"sha256:{digest}")
        yield Package(folder, files, left_out, version)
    finally:
        file_trees.remove(scratch)


def _listed(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """The files that can be uploaded, and those that cannot. A link to a file is uploaded as that file."""
    files, left_out = {}, {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        if why := _not_allowed(folder, path, name):
            left_out[ascii(name)[1:-1]] = why
        else:
            files[name] = path.stat().st_size
    return files, left_out


def _not_allowed(folder: Path, path: Path, name: str) -> str:
    """Why a file cannot be uploaded; empty if it can."""
    if path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(folder)):
        return "a link to a folder: the hub has no links"
    if not name.isprintable():
        return "its name is not printable"
    if NOT_ALLOWED & set(Path(name).parts):
        return "the hub takes no folder of that name"
    return ""


def _digest(folder: Path, files: dict[str, int]) -> str:
    """Hash of all paths and contents. Refused if one of them holds a known secret, or what looks like a key."""
    secrets, whole = known_secrets(), hashlib.sha256()
    for name in files:
        scrubber, content, before, found = Scrubber(secrets), hashlib.sha256(), b"", ""
        scrubber.feed(name.encode())
        with (folder / name).open("rb") as file:
            while chunk := file.read(CHUNK):
                content.update(chunk)
                scrubber.feed(chunk)
                found = found or _key_in(before + chunk)
                before = chunk[-OVERLAP:]
        scrubber.flush()
        if found or scrubber.found:
            raise Refused(
                f"{scrub_text(name)} holds {found or 'a known secret'} {', '.join(sorted(scrubber.found))}".rstrip()
                + ": take it out of the environment, replace the key, and begin a new campaign"
            )
        whole.update(f"{name}\0{content.hexdigest()}\n".encode())
    return whole.hexdigest()


def _key_in(data: bytes) -> str:
    """What kind of key the data seem to hold; empty if none."""
    match = KEY.search(data)
    return next((kind for kind, form in KEYS.items() if re.match(form, match[0])), "") if match else ""
