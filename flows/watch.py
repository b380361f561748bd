"""Watch a campaign run: a line for each trial as it is decided, and a live view of what is under way.

It reads the campaign's status document and nothing else, so the flow does not know that somebody watches, and a
campaign of another process can be watched as well. On a terminal the live view stands below the lines and is gone at
the end; a file or a pipe gets the lines alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, ClassVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from environments.plugins import Refused
from flows.status import document, under_way
from flows.views.overview import HEADING, Document, trial_line
from flows.views.terminal import clean, cleaned, is_screen, put
from tasks.numbers import duration, number
from tasks.spending import parts
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.trial import History

BAR = 20
"""Columns of a bar."""


class CampaignWatch:
    """Show what happens to a campaign while a `with` block runs; it need not exist yet."""

    look_seconds: ClassVar[float] = 1.0

    def __init__(self, name: str, console: Console) -> None:
        self._name, self._console = name, console
        self._document: dict[str, Any] = {}
        """Its texts are cleaned."""
        self._events: list[dict[str, Any]] = []
        self._history: History = ()
        self._printed: set[object] = set()
        """The facts that have had their line."""
        self._live = ExitStack()

    def __enter__(self) -> CampaignWatch:
        if self._console.quiet:
            return self
        if Ledger.exists(self._name):  # what was decided before is not news
            self.read()
            self._printed = {fact for fact, _ in self._lines()} - {"heading"}
        # Its thread alone draws, so that lines and the live view do not mix; in a file it draws nothing itself.
        often = 1 / self.look_seconds
        live = Live(console=self._console, get_renderable=self.look, refresh_per_second=often, transient=True)
        self._live.enter_context(live)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.close()  # which looks a last time

    def look(self) -> RenderableType:
        """Print what is new; what there is to see now, or why there is nothing."""
        try:
            if not Ledger.exists(self._name):
                return Text("starting ...", "dim")
            self.read()
        except (OSError, ValueError, Refused) as fault:  # a directory that is moved or removed under our eyes
            return Text(f"the campaign's directory cannot be read: {clean(str(fault))}", "dim")
        for fact, line in self._lines():
            if fact not in self._printed:
                self._printed.add(fact)
                put(self._console, line)
        return live_view(self._document)

    def read(self) -> None:
        """Read what runs now, and all else if there is a new event: of a long campaign that takes a while."""
        ledger = Ledger.open(self._name)
        events = list(ledger.events())
        if not self._document or len(events) != len(self._events):
            self._events, self._document, self._history = events, cleaned(document(ledger)), ledger.history()
        if self._document["state"] == "running":
            self._document |= cleaned(under_way(ledger, self._history))
            self._document["spent"]["seconds"] = campaign_lock.spent(ledger)

    def _lines(self) -> Iterator[tuple[object, Text]]:
        """Every fact that gets a line, and the line."""
        for event in self._events:
            if words := event.get("words") or (event["event"] == "tracking" and event.get("error")):
                yield (event["event"], event["time"]), Text(f" > {clean(str(words))}", "dim")
        for row in self._document["trials"]:
            yield "heading", HEADING
            yield (row["trial"], row["attempt"]), trial_line(row)
        if (waiting := self._document["waiting"]) and not is_screen(self._console):
            yield ("waiting", waiting[-1]["trial"]), Text(f" > {_waits(self._document)}")


def live_view(document: Document) -> Table:
    """What a running campaign does, a line for each fact."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=11, no_wrap=True, style="bold")
    grid.add_column()
    for label, content in _facts(document):
        content.no_wrap, content.overflow = True, "ellipsis"
        grid.add_row(Text(label), content)
    return grid


def _facts(document: Document) -> Iterator[tuple[str, Text]]:
    yield "", Text()
    trials, made, spent, spec = document["under_way"], document["certifying"], document["spent"], document["spec"]
    for trial in trials:
        yield f" trial {trial['trial']}", _beside(trial["seconds"] / trial["budget_seconds"], _stand(trial, document))
    for trial in trials[:1]:
        yield "   why", Text(trial["description"] or "(the proposer does not say)")
        yield "   tries", Text(trial["tried"])
    if made:
        where = f" in {made['where']}" if made["where"] else ""
        yield " certifying", Text(f"trial {made['trial']} against the baseline, on fresh runs{where}")
        words = f"run {made['run']} of at most {made['runs']}, {duration(made['seconds'])}"
        yield "   now", _beside(made["run"] / made["runs"], Text(words))
    if not trials and not made:
        yield " next", Text("ending" if spent["trials"] >= spec["trials"] else "choosing what to try", "dim")
    if document["waiting"]:
        yield " waiting", Text(_waits(document), "yellow")
    if document["trials"]:
        yield " so far", Text(document["headline"].partition(": ")[2])
    count = f"{spent['trials']} of {spec['trials']} trial{'s' * (spec['trials'] > 1)}"
    time_used = f"{duration(spent['seconds'])} of {spec['hours']:g} h"
    yield " spent", Text(" · ".join([count, time_used, *parts(document)]))
    if ends := document["ends"]:
        clock, left = time.strftime("%a %H:%M", time.localtime(ends)), duration(max(ends - time.time(), 0.0))
        yield " ends", Text(f"about {clock}, in {left}{', with the certificate' if document['reserved'] else ''}")
    if page := document["urls"].get("prefect"):
        yield " prefect", Text(page, "dim")


def _beside(share: float, words: Text) -> Text:
    """A bar, and what it says."""
    full = round(BAR * min(share, 1.0))
    return Text.assemble(("━" * full, "cyan"), ("─" * (BAR - full), "dim"), "  ", words)


def _stand(trial: Document, document: Document) -> Text:
    """How far a trial is, and its newest report."""
    if trial["phase"] == "waiting":
        return Text(f"waiting for a slot: {trial['waits_for']}", "yellow")
    text = Text("  ".join(filter(None, (trial["phase"], trial["run"]))), "cyan")
    if trial["value"] is not None:
        text.append(f"  {document['metric']} ", "default").append(number(trial["value"]), "bold default")
    if trial["phase"] != "starting":
        text.append(f"  {duration(trial['seconds'])} of {duration(trial['budget_seconds'])}", "default")
    return text


def _waits(document: Document) -> str:
    """Which trials wait for a person, how long, and for what."""
    left = duration(max(min(one["until"] for one in document["waiting"]) - time.time(), 0.0))
    which = ", ".join(str(one["trial"]) for one in document["waiting"])
    return f"trial {which} for approval ({left} left): nightshift approve | reject"
