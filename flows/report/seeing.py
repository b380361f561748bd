"""What the report shows of champion and baseline themselves: an episode of both."""

from __future__ import annotations

import base64
from typing import NamedTuple

from flows.report.facts import Facts, in_a_line
from tasks.recording import episode
from tasks.recording.episode import GIF, PlayedEpisode
from tasks.store.ledger import Ledger

INLINE_BYTES = 1_500_000
"""Most of a picture inside the page; a larger one is linked."""


class EpisodeView(NamedTuple):
    """An episode as it is shown."""

    sides: tuple[PlayedEpisode, ...]
    url: str
    """Data URL of the GIF; empty where it is too large."""


def record(ledger: Ledger, isolation: str, allow_unsandboxed: bool = False) -> None:
    """Record the episode of a campaign that does not run, if there is one to record and it is not there."""
    episode.record(ledger, Facts.of(ledger).champion, isolation, allow_unsandboxed)


def record_at_the_end(ledger: Ledger, isolation: str, allow_unsandboxed: bool) -> None:
    """The same when a campaign ends: no fault of it is the campaign's."""
    try:
        record(ledger, isolation, allow_unsandboxed)
    except Exception as fault:  # noqa: BLE001 (the result is known, and the report can do without)
        ledger.event("view", failed="episode", error=f"{type(fault).__name__}: {fault}")


def episode_of(facts: Facts) -> EpisodeView | str | None:
    """The recorded episode of the present champion, or why there is none; None where none was to be recorded."""
    recording, gif = episode.load(facts.ledger.path), facts.ledger.path / GIF
    if recording is None or facts.champion is None or recording.champion != facts.champion.number:
        return None
    if recording.reason:
        return in_a_line(recording.reason)
    if not gif.is_file():
        return f"{GIF} is not there any more; `nightshift report` makes it again"
    picture = gif.read_bytes()
    url = f"data:image/gif;base64,{base64.b64encode(picture).decode()}"
    return EpisodeView(recording.episodes, url if len(picture) <= INLINE_BYTES else "")
