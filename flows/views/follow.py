"""Watch a campaign run: a line for each trial as it is decided, and a live view of what is under way.

It reads the campaign's directory and nothing else, so the flow does not know that somebody watches, and a campaign of
another process can be watched as well. On a terminal the live view stands below the lines and is gone at the end; a
file or a pipe gets plain lines, one when a trial begins and one when it is decided.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Literal

from rich.console import Console
from rich.live import Live
from rich.text import Text

from environments.plugins import Refused
from flows.status import SURE_SES, estimate, stored_spec, urls
from flows.views.curves import CurveFile, TrainingCurve
from flows.views.live_model import Certifying, LiveModel, SlotState, UnderWay, campaign_progress, runs_of_a_trial
from flows.views.live_view import begins_line, certificate_line, live_view
from flows.views.terminal import HEADING, before_line, clean, is_screen, put, trial_line
from tasks.machine.slots import describe, holder
from tasks.spending.spent import spent
from tasks.store import approval, attempts, campaign_lock, workspace
from tasks.store.ledger import Ledger, decided_trial
from tasks.store.workspace import TrialDir
from tasks.tracking import sync
from tasks.trial import History, Trial, best

LOOK_SECONDS = 0.25
PREPARING = ("preparing", "fidelity", "machine")
"""Events before the first trial of a life, whose words are shown."""


class CampaignWatch:
    """Show what happens to a campaign while a `with` block runs; it need not exist yet."""

    def __init__(
        self, name: str, console: Console, lines: Callable[[Trial, History], Sequence[Text]] | None = None
    ) -> None:
        """`lines`: what is printed of a decided trial, where that is more than its line."""
        self._name = name
        self._console = console
        self._lines = lines or _its_line
        self._follower: Follower | None = None
        self._told: set[object] = set()
        """Trials, runs and other things of which a line was printed."""
        self._since = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)

    def __enter__(self) -> CampaignWatch:
        if Ledger.exists(self._name):  # what was decided before is not news
            self._follower = Follower(Ledger.open(self._name))
            if history := self._follower.history:
                put(self._console, before_line(history, self._follower.ledger.environment.metric))
            self._follower.read_events()
            self._told = {(trial.number, trial.attempt) for trial in history} | set(self._follower.preparing)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        if self._console.quiet:
            return
        # This thread alone draws, so that lines and the live view do not mix.
        live = Live(console=self._console, auto_refresh=False, transient=True)
        drawn: object = None
        with live if is_screen(self._console) else nullcontext():
            while not self._over.wait(LOOK_SECONDS):
                view = live_view(self.look(), *self._console.size)
                if live.is_started and (lines := self._console.render_lines(view)) != drawn:
                    live.update(view, refresh=True)
                    drawn = lines
            self.look()

    def look(self) -> LiveModel | str:
        """Print what is new; what there is to see now, or why there is nothing."""
        try:
            if not Ledger.exists(self._name):
                waited = time.monotonic() - self._since
                return "its directory is gone" if self._follower else f"starting ... {waited:.0f} s"
            if self._follower is None:
                self._follower = Follower(Ledger.open(self._name))
            model = self._follower.look(time.time())
        except (OSError, ValueError, Refused) as fault:  # a directory that is moved or removed under our eyes
            return f"the campaign's directory cannot be read: {fault}"
        for words in self._follower.preparing:
            self._tell(words, Text(f" > {clean(words)}", "dim"))
        for trial in model.history:
            if (trial.number, trial.attempt) not in self._told:
                self._tell("heading", HEADING)
                self._tell((trial.number, trial.attempt), *self._lines(trial, model.history))
        if not is_screen(self._console):
            self._tell_what_begins(model)
        return model

    def _tell_what_begins(self, model: LiveModel) -> None:
        for trial in model.under_way:
            if ("begins", trial.number) in self._told:
                self._tell((trial.number, trial.run), Text(f"   {trial.number:>4}  {trial.run}", "dim"))
            else:
                self._told.add((trial.number, trial.run))
                self._tell(("begins", trial.number), begins_line(model, trial))
        if model.certifying:
            self._tell(("certificate", model.certifying.champion), certificate_line(model.certifying))
        for number in model.waiting:
            how = f"nightshift approve {self._name} {number}, or reject"
            self._tell(("waits", number), Text(f" > {number:>4}  {'waits':<9} for approval: {how}"))

    def _tell(self, fact: object, *lines: Text) -> None:
        """Print the lines of a fact, once."""
        if fact not in self._told:
            self._told.add(fact)
            for line in lines:
                put(self._console, line)


def _its_line(trial: Trial, history: History) -> Sequence[Text]:
    return (trial_line(trial, history),)


class Follower:
    """Looks at a campaign's directory again and again, and reads only what has changed since the last look."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.history: History = ledger.history()
        self.preparing: tuple[str, ...] = ()
        """What is to be known before a trial: what the environment's recipe said, which budget comes first, and that
        the campaign has moved to another machine."""
        self._open: list[int] = []
        """Trials that have begun and are not decided."""
        self._next = 0
        self._events_bytes = -1
        self._spec: dict[str, Any] = {}
        self._page: str | None = None
        self._certificate: dict[str, Any] | None = None
        """The event of a certificate that was begun and is not made."""
        self._waits: dict[int, str] = {}
        """Trials that wait for a slot, and who holds the slots."""
        self._slot_of: dict[int, str] = {}
        """The slot that a trial was given last."""
        self._slots: dict[str, list[str]] = {}
        """Names of the slots' locks."""
        self._failure: str = ""
        """The last failure of MLflow in this life."""
        self._estimated: tuple[int, tuple[float, float] | None] | None = None
        """Where the champion's true mean likely lies, and after how many trials that was computed."""
        self._curves: dict[TrialDir, CurveFile] = {}

    def look(self, now: float) -> LiveModel:
        """What there is to see; `now` is Unix time, in seconds."""
        self._find_trials()
        self.read_events()
        places = {number: self.ledger.place(number) for number in self._open}
        parked = approval.parked(self.ledger)
        held = [one.number for one in parked if one.state != "approved"]
        begun = {n: place for n, place in places.items() if n not in held and place.proposal.is_file()}
        under_way = tuple(self._under_way(number, now) for number in begun)
        since = max((now - place.proposal.stat().st_mtime for place in begun.values()), default=0.0)
        certifying = None if under_way else self._certifying(now)
        environment, seconds = self.ledger.environment, campaign_lock.spent(self.ledger)
        progress = campaign_progress(self._spec, environment, self.history, seconds, max(since, 0.0), now, certifying)
        waiting = {one.number: one.until for one in parked if one.state == "waiting"}
        what, money = "the certificate" if certifying else "this campaign", spent(self.ledger, self.history)
        return LiveModel(
            environment, self.history, under_way, progress, self._page, now, certifying, tuple(waiting),
            min(waiting.values(), default=None), self._slot_states(under_way, what), money, self._likely(),
            self._unrecorded(),
        )  # fmt: skip

    def _likely(self) -> tuple[float, float] | None:
        """Where the champion's true mean likely lies; computed once per decision."""
        if self._estimated is None or self._estimated[0] != len(self.history):
            champion = best(self.history)
            sure = estimate(self.history, champion) if champion and champion.number else None
            ends = tuple(sure["level"] + side * SURE_SES * sure["se"] for side in (-1, 1)) if sure else None
            self._estimated = len(self.history), (ends[0], ends[1]) if ends else None
        return self._estimated[1]

    def _slot_states(self, under_way: tuple[UnderWay, ...], what: str) -> tuple[SlotState, ...]:
        """The slots of this machine, by the locks and who says to hold them; `what`: this campaign, at no trial."""
        mine = campaign_lock.holder(self.ledger).get("pid")
        trials = {
            self._slot_of.get(trial.number): f"trial {trial.number}" for trial in under_way if not trial.waits_for
        }
        states = []
        for name, locks in self._slots.items():
            pid = next(filter(None, map(holder, locks)), None)
            who = trials.get(name, what) if pid == mine else describe(pid) if pid else ""
            states.append(SlotState(name, who))
        return tuple(states)

    def _unrecorded(self) -> str:
        """How many records wait for MLflow, and why; empty while it has failed at nothing."""
        left = sync.waiting(self.ledger, self.history) if self._failure else 0
        return f"{left} record{' waits' if left == 1 else 's wait'}: {self._failure}" if left else ""

    def read_events(self) -> None:
        """Read the events if there are more, and the specification: a change of that is followed by an event."""
        path = self.ledger.path / "events.jsonl"
        before, self._events_bytes = self._events_bytes, path.stat().st_size if path.is_file() else 0
        if self._events_bytes == before:
            return
        self._spec = stored_spec(self.ledger)
        events = list(self.ledger.events())
        self._page = urls(self.ledger).get("prefect")
        self.preparing = tuple(event["words"] for event in events if event["event"] in PREPARING and "words" in event)
        self._read_life(events)
        about = [event for event in events if event["event"] in ("life", "certify", "certified", "end")]
        self._certificate = about[-1] if about and about[-1]["event"] == "certify" else None

    def _read_life(self, events: Sequence[Mapping[str, Any]]) -> None:
        """What this life said of its slots and of MLflow."""
        self._waits, self._slot_of, self._failure = {}, {}, ""
        for event in events:
            if event["event"] == "life":
                self._waits, self._slot_of, self._slots, self._failure = {}, {}, {}, ""
            elif event["event"] == "waiting":
                self._waits[event["number"]] = event["who"]
            elif event["event"] == "slot":
                self._waits.pop(event["number"], None)
                self._slot_of[event["number"]] = event["slot"]
            elif event["event"] == "slots":
                self._slots = event["locks"]
            elif event["event"] == "tracking":
                self._failure = event["error"]

    def _certifying(self, now: float) -> Certifying | None:
        """The certificate under way, as far as the directories of its runs show."""
        if self._certificate is None:
            return None
        champion, folder = self._certificate["champion"], self._certificate.get("folder", self._certificate["look"])
        folders = list((self.ledger.path / "certificates").glob(f"{folder}-{champion:04d}-*"))
        planned = self._certificate.get("planned", 2 * self._certificate["runs"])
        begun = max((path.stat().st_mtime for path in folders), default=now)
        groups = tuple((champions, baselines) for champions, baselines in self._certificate.get("groups", ()))
        waits = self._waits.get(champion, "")
        seconds, where = self._certificate.get("budget_seconds", 0.0), self._certificate.get("where", "")
        return Certifying(champion, max(len(folders), 1), planned, max(now - begun, 0.0), groups, waits, seconds, where)

    def _find_trials(self) -> None:
        while self.ledger.place(self._next).path.is_dir():
            self._open.append(self._next)
            self._next += 1
        self._open += [number for number in attempts.pending(self.ledger.trials) if number not in self._open]
        decided = {(trial.number, trial.attempt) for trial in self.history} if self._open else set()
        for number in list(self._open):
            is_known = (number, self.ledger.attempt(number)) in decided
            trial = None if is_known else decided_trial(self.ledger.place(number).path)
            if trial is not None:
                others = (other for other in self.history if other.number != number)
                self.history = tuple(sorted((*others, trial), key=lambda trial: trial.order))
            if trial is not None or is_known:
                self._open.remove(number)
                self._curves.clear()  # there may be another champion, and nobody looks at this one again

    def _under_way(self, number: int, now: float) -> UnderWay:
        proposal = workspace.PROPOSAL.validate_json(self.ledger.place(number).proposal.read_bytes())
        environment = self.ledger.environment.at(proposal.share)
        # A schedule follows the share of the budget, so curves of two budgets do not compare.
        champion = None if proposal.is_short else best(self.history)
        place, run = self._run_under_way(number)
        own = self._curve(place)
        phase: Literal["waiting", "starting", "training", "judging"] = "training" if own.ready else "starting"
        elapsed = own.elapsed or 0.0
        if place.judge_log.is_file():
            phase = "judging"
        elif own.ready:
            elapsed += max(now - own.changed, 0.0)
        elif place.log.is_file():  # a program without reports, or before its first
            elapsed = max(now - environment.startup_seconds - place.config.stat().st_mtime, 0.0)
            phase = "training" if elapsed else phase
        waits = self._waits.get(number, "") if phase != "training" else ""
        return UnderWay(
            number=number,
            proposal=proposal,
            phase="waiting" if waits else phase,
            elapsed=min(elapsed, environment.budget_seconds),
            step=own.step,
            curve=own.curve,
            champion_curve=self._curve(self.ledger.place_of(champion)).curve if champion else TrainingCurve(),
            run=run,
            waits_for=waits,
        )

    def _run_under_way(self, number: int) -> tuple[TrialDir, str]:
        """The directory of the run of a trial that began last, and which run that is."""
        first = self.ledger.place(number)
        calibrated = number == 0 and bool(self.ledger.calibrated)
        runs = runs_of_a_trial(self._spec, self.ledger.environment, number, calibrated)
        own = f"{first.path.name}-"
        parts = [path.name.removeprefix(own).split("-") for path in self.ledger.trials.glob(f"{own}*")]
        parts = [part for part in parts if part[0] in ("run", "again")]
        later = [(part[0] == "again", int(part[1]), "-".join(part)) for part in parts]
        if not later:
            return first, f"run 1 of {runs}" if runs > 1 else ""
        rerun, count, part = max(later)
        return self.ledger.place(number, part), f"rerun {count}" if rerun else f"run {count} of {runs}"

    def _curve(self, place: TrialDir) -> CurveFile:
        curve = self._curves.setdefault(place, CurveFile(place.progress, self.ledger.environment.metric))
        curve.read()
        return curve
