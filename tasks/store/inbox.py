"""The inbox: proposals by people and outside agents, tried before those of the proposer.

runs/<campaign>/inbox/0003.json is a proposal, and 0003.refused says why it could not be tried. Any process may add one
at any time; the campaign takes them in order, and a trial's proposal names the one that it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from pydantic import TypeAdapter

from environments.plugins import Refused
from tasks.system.files import write_atomic
from tasks.trial import Params, Proposal


@dataclass(frozen=True)
class InboxProposal:
    params: Params
    """Those that are to differ from the champion's when it is tried."""
    files: Mapping[str, str] | None = None
    """The whole new text of every editable file that changes; None keeps the champion's program."""
    rationale: str = ""
    base: int | None = None
    """The trial whose program the files change; None: the champion's when it is tried."""


IDEA = TypeAdapter(InboxProposal)


def add(folder: Path, idea: InboxProposal) -> str:
    """Add a proposal to the campaign in `folder`; returns its name in the inbox."""
    box = folder / "inbox"
    box.mkdir(exist_ok=True)
    with FileLock(box / ".lock"):
        newest = max((int(path.stem) for path in box.glob("*.*") if path.stem.isdecimal()), default=0)
        path = box / f"{newest + 1:04d}.json"  # a person may have deleted earlier ones
        write_atomic(path, IDEA.dump_json(idea, indent=2) + b"\n")
    return path.stem


def waiting(folder: Path, proposals: Iterable[Proposal]) -> tuple[Path, ...]:
    """The entries that were neither taken nor refused, in order; `proposals` are all of the campaign."""
    done = {proposal.inbox for proposal in proposals} | refused(folder).keys()
    return tuple(path for path in sorted((folder / "inbox").glob("*.json")) if path.stem not in done)


def read(entry: Path) -> InboxProposal:
    """Raises Refused where the entry is no proposal."""
    try:
        return IDEA.validate_json(entry.read_bytes())
    except ValueError as wrong:
        raise Refused(f"it cannot be read: {wrong}") from wrong


def refuse(entry: Path, reason: str) -> None:
    write_atomic(entry.with_suffix(".refused"), reason + "\n")


def refused(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text().strip() for path in sorted((folder / "inbox").glob("*.refused"))}
