"""Watch a campaign run: a line for each trial as it is decided, and a live picture of what is under way.

It reads the campaign's directory and nothing else, so the flow does not know that somebody watches, and a campaign
that another process runs can be watched as well. Into a file or a pipe go plain lines, one when a trial begins and
one when it is decided; on a terminal the picture stands below the lines and is gone when the watch ends.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Literal

from rich.console import Console
from rich.live import Live

from environments.plugins import Refused
from flows.views import live_view, terminal
from flows.views.curves import Curve, CurveFile
from flows.views.live_model import Certifying, Scene, UnderWay, night, runs_of_a_trial
from flows.views.status import stored_spec, urls
from tasks.store import approval, life, workspace
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.trial import History, best

LOOK_SECONDS = 0.25


class Watch:
    """Show what happens to a campaign while a `with` block runs; it need not exist yet."""

    def __init__(self, name: str, console: Console) -> None:
        self._name = name
        self._console = console
        self._alive = terminal.is_screen(console)
        self._follower: Follower | None = None
        self._told: set[int] = set()
        self._begun: dict[int, str] = {}
        """Which run of a trial was last said to have begun."""
        self._certifying = False
        self._preparing: tuple[str, ...] = ()
        """What was told of what is made before the first trial."""
        self._waits: set[int] = set()
        self._since = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        if Ledger.exists(self._name):  # what was decided before is not news
            self._follower = Follower(Ledger.open(self._name))
            history = self._follower.history
            self._told = {trial.number for trial in history}
            self._preparing = _said_of_preparing(self._follower.ledger)
            if history:
                terminal.put(self._console, terminal.so_far(history, self._follower.ledger.environment))
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        if self._console.quiet:
            return
        if not self._alive:
            self._until_over(None)
            return
        # Redrawn when there is something new and by this thread alone, so that nothing flickers.
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            self._until_over(live)

    def _until_over(self, live: Live | None) -> None:
        last_look, drawn = False, ""
        while not last_look:
            last_look = self._over.wait(LOOK_SECONDS)
            picture = live_view.picture(self.look(), *self._console.size)
            if live and (new := f"{picture.plain}{self._console.size}") != drawn:
                drawn = new
                live.update(terminal.shown(picture), refresh=True)

    def look(self) -> Scene | str:
        """Print what is new, and return what there is to see now, or in words why there is nothing."""
        try:
            if not Ledger.exists(self._name):
                waited = time.monotonic() - self._since
                return "its directory is gone" if self._follower else f"starting ... {waited:.0f} s"
            if self._follower is None:
                self._follower = Follower(Ledger.open(self._name))
            scene = self._follower.look(time.time())
        except (OSError, ValueError, Refused) as wrong:  # a directory that is moved or removed under our eyes
            return f"the campaign's directory cannot be read: {wrong}"
        for words in self._follower.preparing[len(self._preparing) :]:
            terminal.put(self._console, live_view.preparing_line(words))
        self._preparing = self._follower.preparing
        for trial in scene.history:
            if trial.number not in self._told:
                self._told.add(trial.number)
                width = self._console.width - 1 if self._alive else None
                terminal.put(self._console, terminal.trial_line(trial, scene.history, width))
        if not self._alive:
            self._say_what_begins(scene)
        return scene

    def _say_what_begins(self, scene: Scene) -> None:
        for trial in scene.under_way:
            if (before := self._begun.get(trial.number)) == trial.run:
                continue
            self._begun[trial.number] = trial.run
            begins = before is None
            terminal.put(
                self._console,
                live_view.begins_line(scene, trial) if begins else live_view.goes_on_line(trial),
            )
        if scene.certifying and not self._certifying:
            terminal.put(self._console, live_view.certificate_line(scene.certifying))
        for number in sorted(set(scene.waiting) - self._waits):
            terminal.put(self._console, live_view.waiting_line(self._name, number))
        self._waits = set(scene.waiting)
        self._certifying = scene.certifying is not None


class Follower:
    """Looks at a campaign's directory again and again, and reads only what has changed since the last look."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.history: History = ledger.history()
        self._open: list[int] = []
        """Numbers of trials that have begun and are not decided."""
        self._next = 0
        self._stamps: dict[str, tuple[int, int]] = {}
        self._spec: dict[str, Any] = {}
        self._page: str | None = None
        self._look_at: tuple[int, int, int] | None = None
        """The certificate that was begun and is not made: its look, its champion, its runs of each arm."""
        self.preparing: tuple[str, ...] = ()
        """What was told of what the environment's recipe makes."""
        self._curves: dict[TrialDir, CurveFile] = {}

    def look(self, now: float) -> Scene:
        """What there is to see; `now` is Unix time, in seconds."""
        self._find_trials()
        if self._is_new("spec.toml"):
            self._spec = stored_spec(self.ledger)
        if self._is_new("events.jsonl"):
            self._page = urls(self.ledger).get("prefect")
            self._look_at = self._certificate_begun()
            self.preparing = _said_of_preparing(self.ledger)
        under_way: list[UnderWay] = []
        since = 0.0
        places = {number: self.ledger.place(number) for number in self._open}
        held = [number for number, place in places.items() if approval.is_held(place)]
        for number in [number for number in places if number not in held]:
            place = places[number]
            if place.proposal.is_file():
                under_way.append(self._under_way(number, now))
                since = max(now - place.proposal.stat().st_mtime, since)
        certifying = None if under_way else self._certifying(now)
        environment, spent = self.ledger.environment, life.spent(self.ledger)
        progress = night(self._spec, environment, self.history, spent, since, now, certifying)
        waits = tuple(number for number in held if not (places[number].path / "answer.json").exists())
        return Scene(
            environment, self.history, tuple(under_way), progress, self._page, now, certifying, waits
        )

    def _certificate_begun(self) -> tuple[int, int, int] | None:
        """What this life's events say of a certificate under way."""
        begun = None
        for event in self.ledger.events():
            if event["event"] in ("life", "certified", "end"):
                begun = None
            elif event["event"] == "certify":
                begun = event["look"], event["champion"], event["runs"]
        return begun

    def _certifying(self, now: float) -> Certifying | None:
        """The certificate under way, as far as the directories of its runs show."""
        if self._look_at is None:
            return None
        look, champion, runs = self._look_at
        found = list((self.ledger.path / "certificates").glob(f"{look}-{champion:04d}-*"))
        begun = max((path.stat().st_mtime for path in found), default=now)
        return Certifying(champion, max(len(found), 1), 2 * runs, max(now - begun, 0.0))

    def _is_new(self, name: str) -> bool:
        """Whether a file of the campaign has changed since it was asked for last."""
        path = self.ledger.path / name
        stamp = (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else (0, 0)
        before, self._stamps[name] = self._stamps.get(name), stamp
        return stamp not in (before, (0, 0))

    def _find_trials(self) -> None:
        while self.ledger.place(self._next).path.is_dir():
            self._open.append(self._next)
            self._next += 1
        decided = {trial.number for trial in self.history} if self._open else set()
        for number in list(self._open):
            trial = None if number in decided else workspace.finished(self.ledger.place(number))
            if trial is not None:
                self.history = tuple(sorted((*self.history, trial), key=lambda trial: trial.settle))
            if trial is not None or number in decided:
                self._open.remove(number)
                self._curves.clear()  # there may be another champion, and nobody looks at this one again

    def _under_way(self, number: int, now: float) -> UnderWay:
        environment, champion = self.ledger.environment, best(self.history)
        place, run = self._run_under_way(number)
        shown = [place, *([self.ledger.place_of(champion)] if champion else [])]
        for one in shown:
            self._curves.setdefault(one, self._curve_file(one)).read()
        own = self._curves[place]
        phase: Literal["starting", "training", "judging"] = "training" if own.ready else "starting"
        elapsed = own.elapsed or 0.0
        if place.judge_log.is_file():
            phase = "judging"
        elif own.ready:
            elapsed += max(now - own.changed, 0.0)
        elif place.log.is_file():  # a program without reports, or before its first
            elapsed = max(now - environment.startup_seconds - place.config.stat().st_mtime, 0.0)
            phase = "training" if elapsed else phase
        return UnderWay(
            number=number,
            proposal=workspace.PROPOSAL.validate_json(self.ledger.place(number).proposal.read_bytes()),
            phase=phase,
            elapsed=min(elapsed, environment.budget_seconds),
            step=own.step,
            curve=own.curve,
            champion_curve=self._curves[shown[-1]].curve if champion else Curve(),
            run=run,
        )

    def _run_under_way(self, number: int) -> tuple[TrialDir, str]:
        """Where the run of a trial is that began last, and which one it is, in words."""
        calibrated = number == 0 and bool(self.ledger.calibrated)
        wanted = runs_of_a_trial(self._spec, self.ledger.environment, number, calibrated)
        place, run = self.ledger.place(number), f"run 1 of {wanted}" if wanted > 1 else ""
        later = [(f"run-{seed}", f"run {seed} of {wanted}") for seed in range(2, wanted + 1)]
        own = f"{place.path.name}-"
        again = [path.name.removeprefix(own) for path in self.ledger.trials.glob(f"{own}again-*")]
        reruns = sorted((int(part.split("-")[1]), part) for part in again)
        for part, words in [*later, *((part, f"rerun {n}") for n, part in reruns)]:
            if (another := self.ledger.place(number, part)).path.is_dir():
                place, run = another, words
        return place, run

    def _curve_file(self, place: TrialDir) -> CurveFile:
        return CurveFile(place.progress, self.ledger.environment.metric)


def _said_of_preparing(ledger: Ledger) -> tuple[str, ...]:
    return tuple(event["words"] for event in ledger.events() if event["event"] == "preparing")
