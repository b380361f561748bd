"""What the report shows of champion and baseline themselves: an episode of both, or their answers to questions."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from flows.report.facts import Facts, in_a_line
from tasks.numbers import number
from tasks.recording import answers, episode
from tasks.recording.answers import AnsweredQuestion
from tasks.recording.episode import PlayedEpisode
from tasks.recording.stage import GIF, STILL
from tasks.store.ledger import Ledger
from tasks.system.redact import capped, clean
from tasks.trial import baseline

INLINE_BYTES = 1_500_000
"""Most of a picture inside the page; a larger one is linked."""
SHOWN = 20
"""Questions of each kind."""
CELL = 240
"""Characters of a text that are shown before it is opened."""


@dataclass(frozen=True)
class EpisodeView:
    """An episode as it is shown, or why there is none."""

    moving: str
    """Data URL of the GIF; empty where it is too large."""
    still: str
    about: str
    """The picture in words."""
    sides: tuple[PlayedEpisode, ...]
    source: str
    reason: str


@dataclass(frozen=True)
class TextCell:
    """A text that a model or a recipe wrote, safe to show."""

    short: str
    whole: str
    """Empty where `short` is all of it."""


@dataclass(frozen=True)
class QuestionRow:
    cells: tuple[TextCell, ...]
    """Question, expected answer, and the answers of baseline and champion."""


@dataclass(frozen=True)
class QuestionTable:
    """Questions that the champion answers better, or worse."""

    title: str
    rows: tuple[QuestionRow, ...]
    more: int
    """How many there are besides."""


@dataclass(frozen=True)
class AnswersView:
    words: str
    tables: tuple[QuestionTable, ...] = ()


def record(ledger: Ledger, isolation: str, allow_unsandboxed: bool = False) -> None:
    """Record the episode of a campaign that does not run, if there is one to record and it is not there."""
    facts = Facts.of(ledger)
    newest = facts.own[-1] if facts.own else None
    episode.record(ledger, facts.champion, newest, isolation, allow_unsandboxed)


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
        return EpisodeView("", "", "", (), "", in_a_line(recording.reason))
    if not (path / GIF).is_file() or not (path / STILL).is_file():
        return EpisodeView("", "", "", (), "", f"{GIF} is not there any more; `nightshift report` makes it again")
    small = (path / GIF).stat().st_size <= INLINE_BYTES
    moving = _url("gif", (path / GIF).read_bytes()) if small else ""
    about = " ".join(_about(one) for one in recording.episodes)
    still = _url("png", (path / STILL).read_bytes())
    return EpisodeView(moving, still, about, recording.episodes, recording.source, "")


def _url(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _about(one: PlayedEpisode) -> str:
    return f"The {one.name}: return {number(one.total)} after {one.steps} steps{', cut there' if one.cut else ''}."


def answers_of(facts: Facts) -> AnswersView | None:
    """Questions that the champion wins and loses; None while it runs, and where no questions are asked."""
    first, champion = baseline(facts.history), facts.champion
    if facts.is_running or first is None or champion is None or champion.number == 0:
        return None
    found = answers.compared(facts.ledger, first, champion)
    if found is None or isinstance(found, str):
        return None if found is None else AnswersView(f"No questions can be shown: {found}.")
    same = found.asked - len(found.won) - len(found.lost)
    words = (
        f"Of {found.asked} questions that both were asked in the search, trial {champion.number} answers "
        f"{len(found.won)} better than the baseline, {len(found.lost)} worse, and {same} equally well."
    )
    return AnswersView(words, (_table("Won", found.won), _table("Lost", found.lost)))


def _table(title: str, questions: tuple[AnsweredQuestion, ...]) -> QuestionTable:
    rows = tuple(
        QuestionRow(tuple(map(_cell, (one.question, one.expected, one.baseline, one.champion))))
        for one in questions[:SHOWN]
    )
    return QuestionTable(f"{title}: {len(questions)}", rows, max(len(questions) - SHOWN, 0))


def _cell(text: str) -> TextCell:
    visible = "".join(char if char.isprintable() or char == "\n" else f"<U+{ord(char):04X}>" for char in text)
    lines = clean(visible)  # some that are printable are invisible
    short = capped(" ".join(" ".join(lines).split()), CELL)
    whole = "\n".join(lines)
    return TextCell(short, "" if whole == short else whole)
