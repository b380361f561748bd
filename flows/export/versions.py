"""The versions of a repository: one commit and one tag for each upload.

A commit's message names campaign, trial and certificate, and has a line for each field of `Version`. So the list of
versions needs no file of its own, and a tag that is missing is made by the next upload of the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tasks.certifying.certificate import Certificate
from tasks.describe import difference, interval, sign_of

if TYPE_CHECKING:
    from huggingface_hub.hf_api import GitCommitInfo

FIELD = re.compile(r"^Nightshift-([A-Z][a-z]*): (.*)$", re.MULTILINE)
UNCERTIFIED = "not certified"


@dataclass(frozen=True)
class Version:
    """What was uploaded."""

    name: str
    """Its tag."""
    campaign: str
    trial: str
    gain: str
    """Certified gain in the metric's own sign, or `UNCERTIFIED`."""
    content: str
    """Digest of all its files."""

    @property
    def title(self) -> str:
        """The first line of its commit's message."""
        proof = self.gain if self.gain == UNCERTIFIED else f"certified, {self.gain}"
        return f"{self.campaign}, trial {self.trial}: {proof}"

    def description(self, text: str) -> str:
        """The rest of its commit's message."""
        lines = [f"Nightshift-{field.name.capitalize()}: {getattr(self, field.name)}" for field in fields(self)]
        return "\n".join([text, "", *lines])


@dataclass(frozen=True)
class UploadedVersion:
    version: Version
    commit: str
    created: datetime
    tagged: bool

    @property
    def document(self) -> dict[str, Any]:
        return {
            "version": self.version.name, "campaign": self.version.campaign, "trial": self.version.trial,
            "gain": self.version.gain, "date": self.created.isoformat(), "commit": self.commit, "tagged": self.tagged,
        }  # fmt: skip


def uploaded(commits: Iterable[GitCommitInfo], tags: Collection[str]) -> tuple[UploadedVersion, ...]:
    """The versions among a repository's commits, in their order."""
    found = []
    for commit in commits:
        stated = {name.lower(): value for name, value in FIELD.findall(commit.message)}
        if all(field.name in stated for field in fields(Version)):
            version = Version(**{field.name: stated[field.name] for field in fields(Version)})
            found.append(UploadedVersion(version, commit.commit_id, commit.created_at, version.name in tags))
    return tuple(found)


def free_name(campaign: str, taken: Collection[str]) -> str:
    """The campaign's name as a tag; with a number where another version has it."""
    name = re.sub(r"\.{2,}", ".", campaign).removesuffix(".lock").rstrip(".")
    number, free = 1, name
    while free in taken or free == "main":  # a tag called as the branch would hide it
        number += 1
        free = f"{name}-v{number}"
    return free


def gain_of(certificate: Certificate | None) -> str:
    """A certified gain with its bound."""
    if certificate is None or certificate.comparison is None:
        return UNCERTIFIED
    gain, ends = difference(certificate, certificate.comparison.gain), interval(certificate)
    if ends is None:
        return gain
    rises = sign_of(certificate) > 0
    return f"{gain} ({'at least' if rises else 'at most'} {ends[0] if rises else ends[1]:+.4g})"
