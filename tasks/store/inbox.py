"""The inbox: ideas of people and outside agents for a campaign, which are tried before any of its proposer's.

    runs/<campaign>/inbox/0003.json       an idea, as it was left
    runs/<campaign>/inbox/0003.refused    why it could not be tried, once that was found

Anybody may add one at any time, from any process; the campaign takes them in their order. That an idea was taken is
not noted here: a trial's proposal says which idea it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from tasks.system.files import write_atomic
from tasks.trial import Params, Proposal


@dataclass(frozen=True)
class InboxProposal:
    """What somebody wants to have tried."""

    params: Params
    """A value for every parameter of the environment."""
    files: Mapping[str, str] | None = None
    """The whole new text of every editable file that changes; None leaves the champion's program as it is."""
    rationale: str = ""
    queued: float = field(default_factory=time.time)
    """Unix time, in seconds."""


IDEA = TypeAdapter(InboxProposal)
LIMIT = 4 * 2**20
"""Bytes of an idea."""


def add(folder: Path, idea: InboxProposal) -> str:
    """Leave an idea; its name in the inbox.

    Args:
        folder: The campaign's.
    """
    box = folder / "inbox"
    box.mkdir(exist_ok=True)
    text = IDEA.dump_json(idea, indent=2).decode() + "\n"
    number = 1 + max((int(path.stem) for path in box.glob("*.json") if path.stem.isdigit()), default=0)
    while True:
        path = box / f"{number:04d}.json"
        try:
            path.touch(exist_ok=False)  # two at once get two numbers
        except FileExistsError:
            number += 1
            continue
        write_atomic(path, text)
        return path.stem


def waiting(folder: Path, proposals: Iterable[Proposal]) -> tuple[tuple[str, InboxProposal], ...]:
    """The ideas that were neither taken nor refused, in their order, by name.

    Args:
        proposals: Everything that was proposed in the campaign.
    """
    taken = {proposal.inbox for proposal in proposals}
    return tuple((name, idea) for name, idea in _left(folder, taken) if isinstance(idea, InboxProposal))


def broken(folder: Path) -> dict[str, str]:
    """Why files of the inbox are no ideas, by name."""
    return {name: idea for name, idea in _left(folder, set()) if isinstance(idea, str)}


def _left(folder: Path, taken: AbstractSet[str]) -> Iterator[tuple[str, InboxProposal | str]]:
    """What was neither taken nor refused, in its order; in place of an idea that cannot be read why not."""
    files = [path for path in (folder / "inbox").glob("*.json") if path.stem.isdigit() and path.is_file()]
    for path in sorted(files, key=lambda path: int(path.stem)):
        if path.stem in taken or path.with_suffix(".refused").exists():
            continue
        try:
            size = path.stat().st_size
            if size > LIMIT:
                yield path.stem, f"it has {size} bytes; at most {LIMIT}"
            elif size:  # otherwise it is being written
                yield path.stem, IDEA.validate_json(path.read_bytes())
        except (ValueError, OSError) as wrong:
            yield path.stem, f"it cannot be read: {wrong}"


def refuse(folder: Path, name: str, reason: str) -> None:
    """Note why an idea cannot be tried."""
    write_atomic(folder / "inbox" / f"{name}.refused", reason + "\n")


def refused(folder: Path) -> dict[str, str]:
    """Why ideas could not be tried, by name."""
    return {path.stem: path.read_text().strip() for path in sorted((folder / "inbox").glob("*.refused"))}
