"""Watch a campaign run: a line for each trial as it is decided, and a live one for the trial under way.

It reads the campaign's directory and nothing else, so the flow does not know that somebody watches, and a campaign
that another process runs can be watched as well.
"""

from __future__ import annotations

import json
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flows import show
from tasks import workspace
from tasks.ledger import Ledger
from tasks.trial import History, best

LOOK_SECONDS = 0.25
TAIL_BYTES = 4096


class Watch:
    """Print what happens to a campaign while a `with` block runs."""

    def __init__(self, name: str, console: Console) -> None:
        self._name = name
        self._console = console
        self._ledger: Ledger | None = None
        self._history: History = ()
        self._told: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        if Ledger.exists(self._name):  # what earlier lives decided is not news
            self._told = {trial.number for trial in Ledger.open(self._name).history()}
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        if not self._console.is_terminal:
            self._until_over(lambda line: None)
            return
        with Live(console=self._console, refresh_per_second=8, transient=True) as live:
            self._until_over(live.update)

    def _until_over(self, update: object) -> None:
        last_look = False
        while not last_look:
            last_look = self._over.wait(LOOK_SECONDS)
            self._look()
            if callable(update):
                update(self._under_way())

    def _look(self) -> None:
        """Print every trial that was decided since the last look."""
        if self._ledger is None:
            if not Ledger.exists(self._name):
                return
            self._ledger = Ledger.open(self._name)
            self._history = self._ledger.history()
        while (path := self._ledger.place(len(self._history)).trial).is_file():
            self._history += (workspace.TRIAL.validate_json(path.read_bytes()),)
        for trial in self._history:
            if trial.number not in self._told:
                self._told.add(trial.number)
                self._tell(show.trial_line(trial, self._ledger.environment))

    def _tell(self, line: Text) -> None:
        """Print a line: cut to the width of a screen, whole where it goes into a file."""
        if self._console.is_terminal:
            self._console.print(line, no_wrap=True, overflow="ellipsis", highlight=False)
        else:
            self._console.print(line, soft_wrap=True, highlight=False)

    def _under_way(self) -> Text:
        """The trial under way in a line: what is tried, how far it is, and what it has to beat."""
        if self._ledger is None:
            return Text("   starting ...", "dim")
        number, environment = len(self._history), self._ledger.environment
        place = self._ledger.place(number)
        if not place.proposal.is_file():
            return Text("   ...", "dim")
        proposal = workspace.PROPOSAL.validate_json(place.proposal.read_bytes())
        line = Text(f" > {number:>4}  ", no_wrap=True, overflow="ellipsis")
        line.append(f"{'judging' if place.judge_log.is_file() else 'training':<9}", "cyan")
        began = place.proposal.stat().st_mtime
        share = min((time.time() - began) / environment.budget_seconds, 1.0)
        line.append(f" {'━' * round(share * 20):<20} ", "cyan")
        line.append(f"{_last_report(place)}  ", "bold")
        champion = best(self._history)
        if champion:
            line.append(f"champion {show.number(champion.score.value)}  ", "dim")
        line.append(show.params(proposal.params, environment.space))
        return line


def _last_report(place: workspace.TrialDir) -> str:
    """The newest progress of a running trial; empty while there is none."""
    try:
        with place.progress.open("rb") as file:
            file.seek(max(place.progress.stat().st_size - TAIL_BYTES, 0))
            report = json.loads(file.read().splitlines()[-1])
        name, value = next(iter(report["metrics"].items()))
        return f"{name} {value:.4g} at step {report['step']}"
    except (OSError, ValueError, IndexError, KeyError, TypeError, AttributeError, StopIteration):
        return ""  # nothing yet, half a line, or a program with other habits: no news
