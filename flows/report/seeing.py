"""What the report shows of champion and baseline themselves: an episode of both, or their answers to questions."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from flows.report.facts import Facts, in_a_line
from tasks.recording import answers, episode
from tasks.recording.answers import AnswerComparison, AnsweredQuestion
from tasks.recording.episode import GIF, STILL, PlayedEpisode
from tasks.store.ledger import Ledger
from tasks.system.redact import capped, clean
from tasks.trial import baseline

INLINE_BYTES = 1_500_000
"""Most of a picture inside the page; a larger one is linked."""
SHOWN, CELL = 20, 240
"""Questions of each kind, and characters of a text that are shown before it is opened."""


@dataclass(frozen=True)
class EpisodeView:
    """An episode as it is shown, or why there is none."""

    sides: tuple[PlayedEpisode, ...] = ()
    moving: str = ""
    """Data URL of the GIF; empty where it is too large."""
    still: str = ""
    reason: str = ""


@dataclass(frozen=True)
class AnswersView:
    """Questions that the champion wins and loses, with how many there are besides; or why none can be shown."""

    tables: tuple[tuple[str, tuple[tuple[TextCell, ...], ...], int], ...] = ()
    asked: int = 0
    reason: str = ""


@dataclass(frozen=True)
class TextCell:
    """A text that a model or a recipe wrote, safe to show."""

    short: str
    whole: str
    """Empty where `short` is all of it."""


def record(ledger: Ledger, isolation: str, allow_unsandboxed: bool = False) -> None:
    """Record the episode of a campaign that does not run, if there is one to record and it is not there."""
    facts = Facts.of(ledger)
    episode.record(ledger, facts.champion, isolation, allow_unsandboxed)


def record_at_the_end(ledger: Ledger, isolation: str, allow_unsandboxed: bool) -> None:
    """The same when a campaign ends: no fault of it is the campaign's."""
    try:
        record(ledger, isolation, allow_unsandboxed)
    except Exception as fault:  # noqa: BLE001 (the result is known, and the report can do without)
        ledger.event("view", failed="episode", error=f"{type(fault).__name__}: {fault}")


def episode_of(facts: Facts) -> EpisodeView | None:
    """The recorded episode of the present champion; None without one."""
    recording, path = episode.load(facts.ledger.path), facts.ledger.path
    if recording is None or facts.champion is None or recording.champion != facts.champion.number:
        return None
    if recording.reason:
        return EpisodeView(reason=in_a_line(recording.reason))
    if not (path / GIF).is_file() or not (path / STILL).is_file():
        return EpisodeView(reason=f"{GIF} is not there any more; `nightshift report` makes it again")
    small = (path / GIF).stat().st_size <= INLINE_BYTES
    moving = _url("gif", (path / GIF).read_bytes()) if small else ""
    return EpisodeView(recording.episodes, moving, _url("png", (path / STILL).read_bytes()))


def _url(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def answers_of(facts: Facts) -> AnswersView | None:
    """Questions that the champion wins and loses; None while it runs, and where no questions are asked."""
    first, champion = baseline(facts.history), facts.champion
    if facts.is_running or first is None or champion is None or champion.number == 0:
        return None
    found = answers.compared(facts.ledger, first, champion)
    if not isinstance(found, AnswerComparison):
        return AnswersView(reason=found) if found else None
    return AnswersView((_table("better", found.won), _table("worse", found.lost)), found.asked)


def _table(title: str, questions: tuple[AnsweredQuestion, ...]) -> tuple[str, tuple[tuple[TextCell, ...], ...], int]:
    texts = [(one.question, one.expected, one.baseline, one.champion) for one in questions[:SHOWN]]
    return title, tuple(tuple(map(_cell, row)) for row in texts), len(questions)


def _cell(text: str) -> TextCell:
    printable = "".join(char if char.isprintable() or char == "\n" else f"<U+{ord(char):04X}>" for char in text)
    lines = clean(printable)  # some that are printable are invisible
    short = capped(" ".join(" ".join(lines).split()), CELL)
    whole = "\n".join(lines)
    return TextCell(short, "" if whole == short else whole)
