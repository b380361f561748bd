"""A champion uploaded to the Hugging Face hub: one commit and one tag, or none of them.

Content goes first, where what has arrived is not sent again; then one commit, on the one that was looked at; then the
tag. An upload that was cut off at any point is finished by the next: the commit says which content it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from environments.plugins import Refused
from flows.export.hub import BRANCH, HubFailed, HubRepository, RepositoryState
from flows.export.package import Package, checked_champion, packed
from flows.export.versions import UploadedVersion, Version, free_name, uploaded
from tasks.store.ledger import Ledger

FOLDERS = ("environment/", "checkpoint/")
"""Folders that a version has whole: files of an earlier one are deleted there, and nowhere else."""
SHOWN = 5


@dataclass(frozen=True)
class Uploaded:
    repository: str
    """Its address."""
    visibility: Literal["private", "public"]
    version: Version
    commit: str
    again: bool
    """Whether all was there already."""

    @property
    def url(self) -> str:
        return f"{self.repository}/tree/{self.version.name}"


def upload(ledger: Ledger, name: str, *, public: bool, uncertified: bool, say: Callable[[str], None]) -> Uploaded:
    """Upload the champion of a campaign to the repository of that name, which is made if there is none.

    Raises:
        Refused: there is nothing to upload, or the hub does not take it.
        HubFailed: the hub fails, also after some time.
        OSError: the folder cannot be written.
    """
    checked_champion(ledger, uncertified)
    repository = HubRepository.connect(name, say)
    found = repository.state()
    if found:
        say(f"{repository.url} exists and is {found.visibility}: it stays so")
    with packed(ledger, uncertified) as package:
        for path, why in package.left_out.items():
            say(f"left out: {path} ({why})")
        if found is None:
            visibility: Literal["private", "public"] = "public" if public else "private"
            repository.create(visibility)
            say(f"{repository.url} is new and {visibility}")
        return repository.ask(lambda: _publish(repository, package, say))


def versions(name: str, say: Callable[[str], None]) -> tuple[UploadedVersion, ...]:
    """What was uploaded to a repository, the newest first. Raises Refused and HubFailed."""
    repository = HubRepository.connect(name, say)
    _state(repository)
    return uploaded(repository.commits(), repository.tags())


def _publish(repository: HubRepository, package: Package, say: Callable[[str], None]) -> Uploaded:
    """Look at what is there, and do what is missing. Whoever does it again after a failure goes on from there."""
    state, tags = _state(repository), repository.tags()
    earlier = uploaded(repository.commits(), tags)
    same = next((one for one in earlier if one.version.content == package.version.content), None)
    if same and (same.tagged or not _lacking(repository.sizes(same.commit), package)):
        version, commit = same.version, same.commit
    else:
        same = None
        taken = tags | {one.version.name for one in earlier}
        version = replace(package.version, name=free_name(package.version.campaign, taken))
        commit = _commit(repository, package, version, state, say)
        if commit == state.head:  # the branch has it all, in a commit that is not ours: of a rewritten history
            return Uploaded(repository.url, state.visibility, replace(version, name=BRANCH), commit, again=True)
        if missing := _lacking(repository.sizes(commit), package):
            shown = ", ".join(missing[:SHOWN])
            raise HubFailed(f"{repository.url}: commit {commit} has no tag, since it lacks files: {shown}")
    if not (same and same.tagged):
        repository.tag(version.name, commit)
    return Uploaded(repository.url, state.visibility, version, commit, bool(same and same.tagged))


def _state(repository: HubRepository) -> RepositoryState:
    state = repository.state()
    if state is None:
        raise Refused(f"{repository.url}: there is no such repository, or the token may not see it")
    return state


def _commit(
    repository: HubRepository, package: Package, version: Version, state: RepositoryState, say: Callable[[str], None]
) -> str:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    say(f"uploading {len(package.files)} files")
    additions = [
        CommitOperationAdd(path_in_repo=path, path_or_fileobj=(package.folder / path).resolve())
        for path in package.files
    ]
    stale = sorted(path for path in state.files - set(package.files) if path.startswith(FOLDERS))
    deletions = [CommitOperationDelete(path_in_repo=path, is_folder=False) for path in stale]
    text = "A champion of Nightshift: README.md says what it is, and how far it is proven."
    return repository.commit(additions, deletions, state.head, version.title, version.description(text))


def _lacking(there: Mapping[str, int], package: Package) -> list[str]:
    """Files of a package that a commit lacks, or has otherwise."""
    return [path for path, size in package.files.items() if there.get(path) != size]
