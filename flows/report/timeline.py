"""A campaign's timeline: what ran when, derived from the times of its trials, certificates and events.

As timeline.json it opens in Perfetto (ui.perfetto.dev) or chrome://tracing. Nothing is recorded for it, and it is
valid at any moment of a running campaign. Slices of one track never overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tasks.certifying.certificate import Certificate
from tasks.trial import History, Run, Trial

ROLES = {"start": "starting", "train": "training", "judge": "judging", "propose": "proposing", "wait": "rest"}
"""Kinds of slices, with their class of the style sheet."""
SHORTEST, CLOSE = 1e-3, 0.5
"""Seconds: a shorter slice is left out; and by how much one may begin before the last one of its slot has ended."""


@dataclass(frozen=True)
class Span:
    """One thing that was done, in seconds of Unix time."""

    kind: str
    name: str
    begin: float
    end: float
    facts: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Job:
    """Spans that one slot did one after another."""

    spans: tuple[Span, ...]

    @property
    def begin(self) -> float:
        return self.spans[0].begin

    def after(self, begin: float) -> list[Span]:
        """Its spans, as far as they come after a time: two clocks that are rounded may overlap a little."""
        cut = [replace(span, begin=max(span.begin, begin)) for span in self.spans]
        return [span for span in cut if span.seconds > 0]


Tracks = dict[str, list[Span]]


def tracks(history: History, certificates: Sequence[Certificate], events: Iterable[Mapping[str, Any]]) -> Tracks:
    """Spans by track: as many slots as ever were busy at once, and one track for proposers and for waiting."""
    events = list(events)
    jobs = sorted([*_runs(history, certificates), *_judgements(history, events)], key=lambda job: job.begin)
    found: Tracks = {}
    slots: list[list[Span]] = []
    for job in jobs:
        free = max((slot for slot in slots if slot[-1].end <= job.begin + CLOSE), key=_end, default=None)
        if free is None:
            slots.append(free := [])
        free += job.after(_end(free))
    found |= {f"slot {number}": slot for number, slot in enumerate(slots, 1)}
    proposals = [_proposing(trial) for trial in history if trial.runs and trial.proposal.seconds > SHORTEST]
    waiting = list(_waits(events))
    return found | {name: _apart(spans) for name, spans in (("proposer", proposals), ("waiting", waiting)) if spans}


def chrome(tracks: Tracks, slot_use: Mapping[str, float]) -> dict[str, Any]:
    """The tracks in the trace event format, with the shares of the slots' time; times in microseconds from the first
    span.
    """
    start = min((span.begin for spans in tracks.values() for span in spans), default=0.0)
    named = [
        {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for tid, name in enumerate(tracks, 1)
    ]
    slices = [
        {
            "ph": "X", "pid": 1, "tid": tid, "cat": span.kind, "name": f"{span.kind} {span.name}",
            "ts": round((span.begin - start) * 1e6), "dur": round(span.seconds * 1e6), "args": dict(span.facts),
        }
        for tid, spans in enumerate(tracks.values(), 1)
        for span in spans
    ]  # fmt: skip
    return {
        "displayTimeUnit": "ms",
        "otherData": {"unix seconds of the start": start, "slot use": dict(slot_use)},
        "traceEvents": [*named, *slices],
    }


def _waits(events: Iterable[Mapping[str, Any]]) -> Iterator[Span]:
    """From when a trial waits for a slot until it has one; what waits at the end is left out."""
    waits: dict[int, list[Mapping[str, Any]]] = {}  # by trial: its first run to wait gets its first slot
    for event in events:
        if event["event"] == "life":
            waits = {}
        elif event["event"] == "waiting":
            runs = waits.setdefault(event["number"], [])
            if not any("job" in one and one["job"] == event.get("job") for one in runs):  # it tells every new reason
                runs.append(event)
        elif event["event"] == "slot" and waits.get(event["number"]):
            began = waits[event["number"]].pop(0)
            name, facts = f"trial {event['number']}, for a slot", {"held by": str(began.get("who", ""))}
            yield Span("wait", name, began["time"], event["time"], facts)


def _end(slot: Sequence[Span]) -> float:
    return slot[-1].end if slot else -math.inf


def _runs(history: History, certificates: Sequence[Certificate]) -> Iterator[Job]:
    """A job for each training run; runs of an earlier certificate are shown there."""
    for trial in history:
        for run in (*trial.runs, *(rerun.run for rerun in trial.reruns if not rerun.calibrated)):
            if run.started:
                yield _of_run(run, f"trial {trial.number}")
    for one in certificates:
        for fresh in one.runs[one.carried :]:
            if fresh.run.started:
                yield _of_run(fresh.run, f"{fresh.arm}, certificate {one.look}")


def _judgements(history: History, events: Iterable[Mapping[str, Any]]) -> Iterator[Job]:
    """A job for each judgement: it ends when its trial gives the slot back. Older campaigns did not note it."""
    facts = {trial.number: {"verdict": trial.verdict.kind, "score": trial.score.value} for trial in history}
    for event in events:
        if event["event"] == "slot free" and event.get("judge", 0.0) > SHORTEST:
            number, end = event["number"], event["time"]
            yield Job((Span("judge", f"trial {number}", end - event["judge"], end, facts.get(number, {})),))


def _proposing(trial: Trial) -> Span:
    made, begin = trial.proposal, trial.runs[0].started
    facts = {"proposer": made.proposer, "model calls": made.usage.calls, "tokens": made.usage.tokens}
    return Span("propose", f"trial {trial.number}", begin - made.seconds, begin, facts)


def _of_run(run: Run, name: str) -> Job:
    """Start and training; a program that was never ready has only a training."""
    end = run.started + max(run.wall_seconds, run.seconds)
    ready = min(run.started + (run.startup or 0.0), end)
    facts = {"seed": run.seed, "status": run.status, "steps": run.steps, "peak memory": run.peak_memory}
    start = Span("start", name, run.started, ready, {"isolation": run.isolation})
    train = Span("train", name, ready, max(end, ready + SHORTEST), facts)
    return Job((start, train) if start.seconds > SHORTEST else (train,))


def _apart(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, each cut off where the next one begins."""
    ordered = sorted(spans, key=lambda span: span.begin)
    cut = [Span(a.kind, a.name, a.begin, min(a.end, b.begin), a.facts) for a, b in pairwise(ordered)]
    return [span for span in (*cut, *ordered[-1:]) if span.seconds > SHORTEST]
