"""The inbox: proposals by people and outside agents, tried before those of the proposer.

    runs/<campaign>/inbox/0003.json       a proposal
    runs/<campaign>/inbox/0003.refused    why it could not be tried

Any process may add one at any time; the campaign takes them in order. Whether one was taken is recorded with the
trial: its proposal names its inbox entry.
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
    params: Params
    """Those that are to differ from the champion's when it is tried."""
    files: Mapping[str, str] | None = None
    """The whole new text of every editable file that changes; None keeps the champion's program."""
    rationale: str = ""
    queued: float = field(default_factory=time.time)
    base: int | None = None
    """The trial whose program the files change; None: the champion's when it is tried."""


IDEA = TypeAdapter(InboxProposal)
LIMIT = 4 * 2**20
"""Largest size in bytes."""


def add(folder: Path, idea: InboxProposal) -> str:
    """Add a proposal to the campaign in `folder`; returns its name in the inbox."""
    box = folder / "inbox"
    box.mkdir(exist_ok=True)
    number = 1 + max((int(path.stem) for path in box.glob("*.json") if path.stem.isdecimal()), default=0)
    while True:
        path = box / f"{number:04d}.json"
        try:
            path.touch(exist_ok=False)  # concurrent calls get different numbers
            break
        except FileExistsError:
            number += 1
    write_atomic(path, IDEA.dump_json(idea, indent=2).decode() + "\n")
    return path.stem


def waiting(folder: Path, proposals: Iterable[Proposal]) -> tuple[tuple[str, InboxProposal], ...]:
    """Proposals that were neither taken nor refused, in order, by name; `proposals` are all of the campaign."""
    taken = {proposal.inbox for proposal in proposals}
    return tuple((name, idea) for name, idea in _left(folder, taken) if not isinstance(idea, str))


def broken(folder: Path) -> dict[str, str]:
    """Why files of the inbox are invalid, by name."""
    return {name: idea for name, idea in _left(folder, set()) if isinstance(idea, str)}


def _left(folder: Path, taken: AbstractSet[str]) -> Iterator[tuple[str, InboxProposal | str]]:
    """What was neither taken nor refused, in order; for an invalid file the reason."""
    files = [path for path in (folder / "inbox").glob("*.json") if path.stem.isdecimal() and path.is_file()]
    for path in sorted(files, key=lambda path: int(path.stem)):
        if path.stem in taken or path.with_suffix(".refused").exists():
            continue
        try:
            size = path.stat().st_size
            if size > LIMIT:
                yield path.stem, f"it has {size} bytes; at most {LIMIT}"
            elif size:  # otherwise it is still being written
                yield path.stem, IDEA.validate_json(path.read_bytes())
        except (ValueError, OSError) as wrong:
            yield path.stem, f"it cannot be read: {wrong}"


def refuse(folder: Path, name: str, reason: str) -> None:
    write_atomic(folder / "inbox" / f"{name}.refused", reason + "\n")


def refused(folder: Path) -> dict[str, str]:
    """Why proposals could not be tried, by name."""
    return {path.stem: path.read_text().strip() for path in sorted((folder / "inbox").glob("*.refused"))}
