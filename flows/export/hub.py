"""A repository on the Hugging Face hub, by huggingface_hub.

Requests that fail for the moment are made again, after the time that the hub asks for. What the hub refuses is
`Refused`; what else fails is `HubFailed`. The token is read from HF_TOKEN or the stored login and never shown.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import httpx

from environments.plugins import Refused
from flows.views.terminal import clean
from tasks.system.redact import remember, scrub_text

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.hf_api import GitCommitInfo, ModelInfo

T = TypeVar("T")
BRANCH = "main"
EXTRA = "huggingface-hub>=1.31,<2"
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before a failed request is made again, where the hub names no time."""
LONGEST_WAIT = 900.0
"""Seconds that are waited because the hub asks for it."""
TIMEOUT = 120.0
"""Seconds without a byte after which a request has failed: a large commit takes the hub a while."""
PASSING = (408, 412, 429, 500, 502, 503, 504)
"""Answers after which asking again may help; 412: somebody else has committed meanwhile."""
NO_IGNORED_FILES = "# all files of a version are kept\n"
"""Stands in for a .gitignore of the repository, by which the hub would leave files out of a commit."""


class HubFailed(OSError):
    """The hub or the way to it failed, and did so again."""


@dataclass(frozen=True)
class RepositoryState:
    visibility: Literal["private", "public"]
    head: str
    """The newest commit of the branch."""
    files: frozenset[str]


def library() -> Any:
    """huggingface_hub, without telemetry. It reads its settings from the environment when it is imported.

    Large files go by the LFS protocol unless HF_HUB_DISABLE_XET says otherwise: it is the one that is tested here, and
    any hub knows it.
    """
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        import huggingface_hub
    except ModuleNotFoundError as missing:
        needs = f"uploading needs the package {missing.name!r}"
        raise Refused(f"{needs}: pip install '{EXTRA}', the extra hub") from missing
    for handler in logging.getLogger("huggingface_hub").handlers:
        handler.addFilter(_without_signatures)
    return huggingface_hub


def _without_signatures(record: logging.LogRecord) -> bool:
    """Cut the queries off the addresses in a warning: they may hold a signature, with which anybody could upload."""
    record.msg = re.sub(r"(https?://[^\s?]*)\?[^\s]*", r"\1", str(record.msg))
    return True


def endpoint() -> str:
    """The address of the hub."""
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise Refused(f"HF_ENDPOINT={address}: an address begins with https:// or http://")
    return address


def check_repository_name(name: str) -> None:
    """Raises Refused for a name that no repository can have, or without its owner."""
    library()
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # its types do not say so

    try:
        validate_repo_id(name)
    except HFValidationError as wrong:
        raise Refused(f"--repo {name!r}: {wrong}") from wrong
    if "/" not in name:
        raise Refused(f"--repo {name}: say whose it is too, as in your-name/{name}")


class HubRepository:
    """A model repository, with the user's token."""

    def __init__(self, name: str, api: HfApi, say: Callable[[str], None]) -> None:
        self.name = name
        self.url = f"{api.endpoint}/{name}"
        self._api = api
        self._say = say

    @classmethod
    def connect(cls, name: str, say: Callable[[str], None]) -> HubRepository:
        """Check name, token and address, and ask the hub whether it knows the token.

        Raises:
            Refused: one of them will not do.
            HubFailed: the hub cannot be reached.
        """
        hub, address = library(), endpoint()
        check_repository_name(name)
        if hub.is_offline_mode():
            raise Refused("HF_HUB_OFFLINE is set, so nothing can be uploaded: unset it")
        token = hub.get_token()
        if not token:
            raise Refused(
                f"no token for {address}: set HF_TOKEN to one with the right to write ({address}/settings/tokens), or "
                "log in with `hf auth login`"
            )
        remember("HF_TOKEN", token)
        hub.set_client_factory(lambda: httpx.Client(follow_redirects=True, timeout=TIMEOUT))
        found = cls(name, hub.HfApi(endpoint=address, token=token, library_name="nightshift"), say)
        found.ask(found._api.whoami)
        return found

    def state(self) -> RepositoryState | None:
        """The repository as it is now; None if there is none that the token may see."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def look() -> ModelInfo | None:
            try:
                return self._api.model_info(self.name)
            except RepositoryNotFoundError:
                return None

        info = self.ask(look)
        if info is None:
            return None
        files = frozenset(file.rfilename for file in info.siblings or ())
        return RepositoryState("private" if info.private else "public", info.sha or "", files)

    def create(self, visibility: Literal["private", "public"]) -> None:
        self.ask(lambda: self._api.create_repo(self.name, visibility=visibility, exist_ok=True))

    def commits(self) -> Sequence[GitCommitInfo]:
        """Every commit, the newest first."""
        return self.ask(lambda: self._api.list_repo_commits(self.name))

    def tags(self) -> frozenset[str]:
        return frozenset(tag.name for tag in self.ask(lambda: self._api.list_repo_refs(self.name)).tags)

    def sizes(self, commit: str) -> Mapping[str, int]:
        """The files of a commit and their sizes in bytes."""
        from huggingface_hub.hf_api import RepoFile

        tree = self.ask(lambda: list(self._api.list_repo_tree(self.name, recursive=True, revision=commit)))
        return {entry.path: entry.size for entry in tree if isinstance(entry, RepoFile)}

    def commit(
        self, additions: Sequence[CommitOperationAdd], deletions: Sequence[CommitOperationDelete], parent: str,
        title: str, description: str,
    ) -> str:  # fmt: skip
        """Upload what is not there yet and make one commit on `parent`; returns its hash. It is not made again."""
        try:
            self._api.preupload_lfs_files(self.name, additions, free_memory=False, gitignore_content=NO_IGNORED_FILES)
            made = self._api.create_commit(
                self.name, [*additions, *deletions], commit_message=title, commit_description=description,
                parent_commit=parent,
            )  # fmt: skip
        except json.JSONDecodeError:
            raise
        except ValueError as wrong:  # it takes a file or the card's front matter not
            raise HubFailed(f"{self.url}: {clean(scrub_text(str(wrong)))[:300]}") from wrong
        return made.oid

    def tag(self, name: str, commit: str) -> None:
        self.ask(lambda: self._api.create_tag(self.name, tag=name, revision=commit, exist_ok=True))

    def ask(self, action: Callable[[], T]) -> T:
        """What an action returns, which is repeated as long as that may help.

        Raises:
            Refused: the hub does not accept the token, or not for this.
            HubFailed: it fails otherwise, or still.
        """
        waits = iter(WAITS)
        while True:
            try:
                return action()
            except (httpx.HTTPError, RuntimeError, json.JSONDecodeError) as error:
                failure = error.__cause__ if isinstance(error, RuntimeError) else error
                if not isinstance(failure, httpx.HTTPError | json.JSONDecodeError):
                    raise
                wait = _wait_for(failure, next(waits, None))
                if wait is None:
                    raise self._explained(failure) from error
                self._say(f"{_words(failure)}: again in {wait:g} s")
                time.sleep(wait)

    def _explained(self, error: Exception) -> Refused | HubFailed:
        status, words = _status(error), f"{self.url}: {_words(error)}"
        if status == 401:
            return Refused(f"{words}: it does not accept the token of HF_TOKEN or of the stored login: make a new one")
        if status == 403:
            return Refused(f"{words}: the token may not write there: take one that may, or another --repo")
        if status is not None and status not in PASSING:
            return HubFailed(words)
        return HubFailed(f"{words}: give the same command again later; what has arrived is not uploaded again")


def _status(error: Exception) -> int | None:
    """The status of an answer; None where none came."""
    response = getattr(error, "response", None)
    return None if response is None else int(response.status_code)


def _wait_for(error: Exception, usual: float | None) -> float | None:
    """Seconds to wait until asking again; None if that is of no use any more."""
    status = _status(error)
    if usual is None or (status is not None and status not in PASSING):
        return None
    if status is None:
        return usual
    asked = getattr(error, "response").headers.get("Retry-After", "")  # noqa: B009
    seconds = float(asked) if asked.isdigit() else usual
    return seconds if seconds <= LONGEST_WAIT else None


def _words(error: Exception) -> str:
    """What went wrong, in a line without addresses, which may be signed."""
    status = _status(error)
    if status is None:
        return f"no answer ({type(error).__name__})"
    said = getattr(error, "server_message", None) or ""
    return clean(scrub_text(f"the hub answers {status} {said}".strip()))[:300]
