"""What there is to say of a campaign: everything read from its directory, whichever process runs it.

`document` is the whole of it as one JSON document. `Scene` is what a person wants to see of a campaign that runs:
what is tried, its curve beside the champion's, and how far the night is (flows/watch.py puts it together).
"""

from __future__ import annotations

import bisect
import datetime
import itertools
import json
import math
import os
import statistics
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from environments import Environment, plainly
from flows.daemon import page_of
from tasks import life
from tasks.ledger import Ledger
from tasks.outbox import is_tracked
from tasks.trial import History, Proposal, Trial, baseline, best

READ_BYTES = 2**20
"""Of a curve at one look: a long one is taken in over several looks, and none of them is felt."""
LINE_BYTES = 64 * 2**10
"""A longer line of progress.jsonl is no report, and is skipped."""
POINTS = 256
"""Of a curve: when twice as many are there it is thinned to so many, four for every column of a screen."""
RECENT = 10
"""Trials whose pace tells how long the next ones take."""

Axis = Literal["elapsed", "step"]


def document(ledger: Ledger) -> dict[str, Any]:
    """The campaign's status; the shape is documented in docs/command-line.md."""
    campaign, history = ledger.campaign, ledger.history()
    return {
        "campaign": campaign.name,
        "campaign_id": campaign.campaign_id,
        "environment": campaign.environment,
        "metric": ledger.environment.metric,
        "direction": ledger.environment.direction,
        "state": state(ledger),
        "reason": ended(ledger).get("reason"),
        "spec": stored_spec(ledger),
        "seed": campaign.seed,
        "isolation": campaign.isolation,
        "baseline": _scored(baseline(history)),
        "champion": _champion(best(history)),
        "shipped": _shipped(ledger, history),
        "certificate": None,
        "trials": [_row(trial) for trial in history],
        "spent": {
            "seconds": round(life.spent(ledger), 1),
            "trials": len([trial for trial in history if trial.number > 0]),
            "usd": _cost(history),
        },
        "waiting_to_record": len([trial for trial in history if not is_tracked(ledger, trial)]),
        "urls": urls(ledger),
    }


def _shipped(ledger: Ledger, history: History) -> str | None:
    """`baseline` when a campaign has ended and kept nothing else. A champion is shipped by its certificate only."""
    champion = best(history)
    return "baseline" if ended(ledger) and champion and champion.number == 0 else None


def state(ledger: Ledger) -> str:
    """running, finished, failed, stopped, or interrupted (its last life ended without a word)."""
    return "running" if life.is_running(ledger) else str(ended(ledger).get("state", "interrupted"))


def ended(ledger: Ledger) -> dict[str, Any]:
    """How the last life ended; empty when it still runs or was cut off."""
    last: dict[str, Any] = {}
    for event in ledger.events():
        if event["event"] == "life":
            last = {}
        elif event["event"] == "end":
            last = event
    return last


def urls(ledger: Ledger) -> dict[str, str]:
    """Where the campaign's trials are shown: by MLflow, and its last life by Prefect."""
    found: dict[str, str] = {}
    for event in ledger.events():
        if event["event"] == "life" and event.get("page"):
            found["prefect"] = event["page"]
        elif event["event"] == "tracked":
            found |= {f"mlflow_{key}": value for key, value in event["urls"].items()}
    return _served(found, ledger.path.parent)


def _served(found: dict[str, str], home: Path) -> dict[str, str]:
    """Of the home's own database: addresses while `nightshift up` serves it, and else that as the command to do so."""
    if str(home / "mlflow.db") not in found.get("mlflow_command", ""):
        return found
    page = page_of(home, "mlflow")
    if page is None:
        return found | {"mlflow_command": "nightshift up"}
    paths = {key: value for key, value in found.items() if key.startswith("mlflow_") and key.endswith("path")}
    served = {key.removesuffix("path") + "url": page + path for key, path in paths.items()}
    return {key: value for key, value in found.items() if key not in {*paths, "mlflow_command"}} | served


def stored_spec(ledger: Ledger) -> dict[str, Any]:
    """The specification of the campaign's last life."""
    return tomllib.loads((ledger.path / "spec.toml").read_text())


def summary(ledger: Ledger) -> dict[str, Any]:
    """A campaign in a line."""
    history = ledger.history()
    return {
        "campaign": ledger.campaign.name,
        "environment": ledger.campaign.environment,
        "state": state(ledger),
        "trials": len([trial for trial in history if trial.number > 0]),
        "baseline": _scored(baseline(history)),
        "champion": _champion(best(history)),
        "created": ledger.campaign.created,
    }


def _scored(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {"trial": trial.number, "score": trial.score.value, "se": trial.score.se, "n": trial.score.n}


def _champion(trial: Trial | None) -> dict[str, Any] | None:
    return None if trial is None else {**(_scored(trial) or {}), "params": trial.proposal.params}


def _row(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "attempt": trial.attempt,
        "verdict": trial.verdict.kind,
        "level": trial.verdict.level,
        "score": trial.score.value,
        "se": trial.score.se,
        "n": trial.score.n,
        "also": trial.score.also,
        "seconds": trial.runs[-1].seconds,
        "params": trial.proposal.params,
        "description": trial.proposal.rationale,
        "reason": trial.verdict.reason,
        "proposer": trial.proposal.proposer,
    }


def _cost(history: History) -> float | None:
    """What the proposals cost in USD; None when nothing is known to have been bought."""
    costs = [trial.proposal.cost for trial in history if trial.proposal.cost is not None]
    return sum(costs) if costs else None


class Point(NamedTuple):
    """One report of a program; what it did not say is None."""

    elapsed: float | None
    """Seconds since it was ready."""
    step: float | None
    value: float


@dataclass(frozen=True)
class Curve:
    """A training curve: one metric as a program reported it, thinned where it is long."""

    name: str = ""
    """The metric: the environment's own, or else the first number that was reported."""
    points: tuple[Point, ...] = ()

    def along(self, axis: Axis) -> list[tuple[float, float]]:
        """(position, value) where the position is known and goes on: a program that begins anew is cut there."""
        line: list[tuple[float, float]] = []
        for point in self.points:
            at = point.elapsed if axis == "elapsed" else point.step
            if at is not None and (not line or at >= line[-1][0]):
                line.append((at, point.value))
        return line


def value_at(line: list[tuple[float, float]], where: float) -> float | None:
    """The value of a curve's line at a position, in proportion between two reports; None before the first."""
    after = bisect.bisect_right(line, where, key=lambda point: point[0])
    if after in (0, len(line)):
        return line[-1][1] if after else None
    (left, low), (right, high) = line[after - 1], line[after]
    return low + (high - low) * (where - left) / (right - left)


class _Series:
    """The points of one metric, evenly thinned as they become many; the newest is always there."""

    def __init__(self) -> None:
        self._kept: list[Point] = []
        self._seen, self._every = 0, 1
        self._newest: Point | None = None

    def add(self, point: Point) -> None:
        self._newest = point
        if self._seen % self._every == 0:
            self._kept.append(point)
        self._seen += 1
        if len(self._kept) == 2 * POINTS:
            self._every *= 2
            del self._kept[1::2]

    def points(self) -> tuple[Point, ...]:
        end = () if self._newest is None or self._kept[-1] is self._newest else (self._newest,)
        return (*self._kept, *end)


class CurveFile:
    """A progress.jsonl, read as a program writes it. The program is not to be trusted with what it writes."""

    def __init__(self, path: Path, metric: str) -> None:
        self._path, self._metric = path, metric
        self._forget()

    def _forget(self) -> None:
        self._inode = self._offset = 0
        self._skipping = False
        self._series: dict[str, _Series] = {}
        self._other = ""
        """What is shown while the environment's own metric has not been reported."""
        self.ready = False
        self.elapsed: float | None = None
        self.step: float | None = None
        self.changed = 0.0
        """Unix time of the last change, in seconds."""

    @property
    def curve(self) -> Curve:
        name = self._metric if self._metric in self._series else self._other
        return Curve(name, self._series[name].points()) if name in self._series else Curve()

    def read(self) -> None:
        """Take in the complete lines that are new, or all of them when the file is another one than before."""
        try:
            file = plainly.open_file(self._path)
        except OSError:  # not there yet, already gone, or no file at all
            self._forget()
            return
        with file:
            about = os.fstat(file.fileno())
            if about.st_ino != self._inode or about.st_size < self._offset:
                self._forget()
            self._inode, self.changed = about.st_ino, about.st_mtime
            if about.st_size > self._offset:
                file.seek(self._offset)
                self._take_in(file.read(READ_BYTES))

    def _take_in(self, new: bytes) -> None:
        end = new.rfind(b"\n") + 1
        lines = new[:end].splitlines()
        if self._skipping and end:  # here ends the line that was too long
            self._skipping, lines = False, lines[1:]
        if self._skipping or len(new) - end > LINE_BYTES:
            self._skipping, end = True, len(new)
        self._offset += end
        for line in lines:
            if len(line) <= LINE_BYTES:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            report = json.loads(line, parse_int=float)  # whole numbers as well, however long
        except (ValueError, RecursionError):
            return
        if not isinstance(report, dict):
            return
        elapsed, step = _finite(report.get("elapsed")), _finite(report.get("step"))
        self.ready = self.ready or report.get("ready") is True or elapsed is not None or step is not None
        self.elapsed = self.elapsed if elapsed is None else elapsed
        self.step = self.step if step is None else step
        metrics = report.get("metrics")
        numbers = metrics.items() if isinstance(metrics, dict) else ()
        found = {name: value for name, number in numbers if (value := _finite(number)) is not None}
        self._other = self._other or (next(iter(found), "") if self._metric not in found else "")
        for name in found.keys() & {self._metric, self._other}:
            self._series.setdefault(name, _Series()).add(Point(elapsed, step, found[name]))


def _finite(value: object) -> float | None:
    return value if isinstance(value, float) and math.isfinite(value) else None


@dataclass(frozen=True)
class UnderWay:
    """The trial that runs now, beside the champion that it has to beat."""

    number: int
    proposal: Proposal
    phase: Literal["starting", "training", "judging"]
    elapsed: float
    """Seconds that it has trained, at most its budget."""
    step: float | None
    curve: Curve
    champion_curve: Curve

    def axis(self, environment: Environment) -> Axis:
        """What its budget counts, where both curves can be compared: seconds, or steps if they are used up first."""
        reference = self.champion_curve if self.champion_curve.points else self.curve
        last = reference.points[-1] if reference.points else Point(None, None, 0.0)
        if last.elapsed is None:
            return "step"
        if not environment.budget_steps or last.step is None:
            return "elapsed"
        faster = last.step / environment.budget_steps >= last.elapsed / environment.budget_seconds
        return "step" if faster else "elapsed"


@dataclass(frozen=True)
class Night:
    """How far a campaign is, and what will end it."""

    trials: int
    """Decided, the baseline not counted."""
    asked: int
    spent: float
    """Seconds, over all lives."""
    share: float
    """How much of what binds is used up, 0..1."""
    binds: Literal["trials", "time"]
    ends: float | None
    """Unix time, in seconds; None while no trial has shown how long one takes."""


def night(
    spec: dict[str, Any], environment: Environment, history: History, spent: float, since: float, now: float
) -> Night:
    """How far the night is: whichever ends first, the trials or the time.

    Args:
        spent: Seconds over all lives.
        since: Seconds since the trial under way was proposed; 0 when none is.
        now: Unix time, in seconds.
    """
    each = pace(history)
    left = max(spec["trials"] + 1 - len(history), 0)
    a_trial = environment.budget_seconds if each is None else each
    by_trials = max(a_trial * left - min(since, a_trial), 0.0)
    by_time = max(spec["hours"] * 3600 - spent, 0.0)
    if until := spec.get("until"):
        by_time = max(min(by_time, datetime.datetime.fromisoformat(until).timestamp() - now), 0.0)
    done = len(history) + min(since / a_trial, 0.95) * (left > 0)
    trials = len([trial for trial in history if trial.number > 0])
    if by_time < by_trials:
        share = spent / (spent + by_time) if by_time else 1.0
        return Night(trials, spec["trials"], spent, share, "time", now + by_time)
    ends = None if each is None else now + by_trials
    return Night(trials, spec["trials"], spent, min(done / (spec["trials"] + 1), 1.0), "trials", ends)


def pace(history: History) -> float | None:
    """Seconds from one trial to the next, as the last ones took; None before the first."""
    begun = [trial.runs[-1].started for trial in history[-RECENT - 1 :]]
    # The median: between two lives of a campaign a day may have passed.
    between = [later - earlier for earlier, later in itertools.pairwise(begun) if later > earlier]
    return statistics.median(between) if between else history[-1].wall_seconds if history else None


@dataclass(frozen=True)
class Scene:
    """What a person wants to see of a campaign that runs, at one moment."""

    environment: Environment
    history: History
    trial: UnderWay | None
    night: Night
    page: str | None
    """Where Prefect shows this life; None when it has not said so."""
    now: float
    """Unix time, in seconds."""

    @property
    def champion(self) -> Trial | None:
        return best(self.history)
