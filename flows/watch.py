"""Watch a campaign run: a line for each trial as it is decided, and a live view of what is under way.

It reads the campaign's status document and nothing else, so the flow does not know that somebody watches, and a
campaign of another process can be watched as well. On a terminal the live view stands below the lines and is gone at
the end; a file or a pipe gets the lines alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from types import TracebackType
from typing import Any, ClassVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from environments.plugins import Refused
from flows.status import document, under_way
from flows.views.overview import HEADING, trial_line
from flows.views.terminal import clean, cleaned, cut, duration, is_screen, put
from tasks.numbers import number
from tasks.spending import parts
from tasks.store.ledger import Ledger
from tasks.trial import History

BAR = 20
"""Columns of a bar."""
Document = Mapping[str, Any]


class CampaignWatch:
    """Show what happens to a campaign while a `with` block runs; it need not exist yet."""

    look_seconds: ClassVar[float] = 0.5

    def __init__(self, name: str, console: Console) -> None:
        self._name, self._console = name, console
        self._ledger: Ledger | None = None
        self._history: History = ()
        self._document: dict[str, Any] = {}
        """Its texts are cleaned."""
        self._events: list[dict[str, Any]] = []
        self._began = 0.0
        self._told: set[object] = set()
        """What a line was printed of."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="watch", daemon=True)

    def __enter__(self) -> CampaignWatch:
        if Ledger.exists(self._name) and not self._console.quiet:  # what was decided before is not news
            self.read()
            if trials := self._document["trials"]:
                before = f"   {len(trials)} trial{'s' * (len(trials) > 1)} before; {self._document['headline']}"
                put(self._console, Text(before, "dim"))
            self._told = {(row["trial"], row["attempt"]) for row in trials}
            self._told |= {(event["event"], event["time"]) for event in self._events}
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        if self._console.quiet:
            return
        # This thread alone draws, so that lines and the live view do not mix.
        live = Live(console=self._console, auto_refresh=False, transient=True)
        with live if is_screen(self._console) else nullcontext():
            while not self._over.wait(self.look_seconds):
                shown = self.look()
                if live.is_started:
                    live.update(shown, refresh=True)
            self.look()

    def look(self) -> RenderableType:
        """Print what is new; what there is to see now, or why there is nothing."""
        try:
            if not Ledger.exists(self._name):
                return Text("the campaign's directory is gone" if self._ledger else "starting ...", "dim")
            self.read()
        except (OSError, ValueError, Refused) as fault:  # a directory that is moved or removed under our eyes
            return Text(f"the campaign's directory cannot be read: {clean(str(fault))}", "dim")
        for event in self._events:
            if words := event.get("words") or (event["event"] == "tracking" and event.get("error")):
                self._tell((event["event"], event["time"]), Text(f" > {clean(str(words))}", "dim"))
        for row in self._document["trials"]:
            if (row["trial"], row["attempt"]) not in self._told:
                self._tell("heading", HEADING)
                self._tell((row["trial"], row["attempt"]), trial_line(row))
        if (waiting := self._document["waiting"]) and not is_screen(self._console):
            self._tell(("waiting", waiting[-1]["trial"]), Text(f" > {_waits(self._document)}"))
        return live_view(self._document)

    def read(self) -> None:
        """Read what runs now, and everything if there is a new event."""
        self._ledger = ledger = self._ledger or Ledger.open(self._name)
        events = list(ledger.events())
        if not self._document or len(events) != len(self._events):
            self._events, self._document, self._history = events, cleaned(document(ledger)), ledger.history()
            self._began = time.time() - self._document["spent"]["seconds"]
        self._document |= cleaned(under_way(ledger, self._history))
        self._document["spent"]["seconds"] = time.time() - self._began

    def _tell(self, fact: object, line: Text) -> None:
        """Print the line of a fact, once."""
        if fact not in self._told:
            self._told.add(fact)
            put(self._console, line)


def live_view(document: Document) -> Table:
    """What a running campaign does, a line for each fact."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=11, no_wrap=True, style="bold")
    grid.add_column()
    for label, content in _facts(document):
        grid.add_row(Text(label), cut(content) if isinstance(content, Text) else content)
    return grid


def _facts(document: Document) -> Iterator[tuple[str, RenderableType]]:
    yield "", Text()
    trials, made = document["under_way"], document["certifying"]
    for trial in trials:
        yield f" trial {trial['trial']}", _beside(trial["seconds"] / trial["budget_seconds"], _stand(trial, document))
    for trial in trials[:1]:
        yield "   why", Text(trial["description"] or "(the proposer does not say)")
        yield "   tries", Text(trial["tried"])
    if made:
        where = f" in {made['where']}" if made["where"] else ""
        yield " certifying", Text(f"trial {made['trial']} against the baseline, on fresh runs{where}")
        words = Text(f"run {made['run']} of at most {made['runs']}, {duration(made['seconds'])}")
        yield "   now", _beside(made["run"] / made["runs"], words)
    if not trials and not made:
        is_over = document["spent"]["trials"] >= document["spec"]["trials"]
        yield " next", Text("ending" if is_over else "choosing what to try", "dim")
    if document["waiting"]:
        yield " waiting", Text(_waits(document), "yellow")
    if document["trials"]:
        yield " so far", Text(document["result"]["verdict"])
    asked = document["spec"]["trials"]
    count = f"{document['spent']['trials']} of {asked} trial{'s' * (asked > 1)}"
    time_used = f"{duration(document['spent']['seconds'])} of {document['spec']['hours']:g} h"
    yield " spent", Text(" · ".join([count, time_used, *parts(document)]))
    if ends := document["ends"]:
        clock, left = time.strftime("%a %H:%M", time.localtime(ends)), duration(max(ends - time.time(), 0.0))
        yield " ends", Text(f"about {clock}, in {left}{', with the certificate' if document['reserved'] else ''}")
    if page := document["urls"].get("prefect"):
        yield " prefect", Text(page, "dim")


def _beside(share: float, words: Text) -> Table:
    """A bar, and what it says."""
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(no_wrap=True)
    row.add_row(ProgressBar(1.0, share, BAR, complete_style="cyan", finished_style="cyan"), cut(words))
    return row


def _stand(trial: Document, document: Document) -> Text:
    """How far a trial is, and its newest report beside what the champion had reported by then."""
    if trial["waits_for"] and trial["phase"] == "waiting":
        return Text(f"waiting for a slot: {trial['waits_for']}", "yellow")
    text = Text("  ".join(filter(None, (trial["phase"], trial["run"]))), "cyan")
    if trial["phase"] != "starting":
        text.append(f"  {duration(trial['seconds'])} of {duration(trial['budget_seconds'])}", "default")
    if trial["value"] is not None:
        text.append(f"  {document['metric']} ", "default").append(number(trial["value"]), "bold default")
        if (champion := trial["champion_value"]) is not None:
            sign = 1 if document["direction"] == "maximize" else -1
            ahead = sign * (trial["value"] - champion) > 0
            text.append(f", {'ahead of' if ahead else 'behind'} {number(champion)}", "green" if ahead else "yellow")
    return text


def _waits(document: Document) -> str:
    """Which trials wait for a person, how long, and for what."""
    left = duration(max(min(one["until"] for one in document["waiting"]) - time.time(), 0.0))
    which = ", ".join(str(one["trial"]) for one in document["waiting"])
    return f"trial {which} for approval ({left} left): nightshift approve | reject"
