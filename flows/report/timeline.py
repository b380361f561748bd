"""A campaign's timeline: what ran when, derived from the times of its trials, certificates and events.

As timeline.json it opens in Perfetto (ui.perfetto.dev) or chrome://tracing. Nothing is recorded for it: it is complete
for campaigns of earlier versions too, and valid at any moment of a running one. Slices of one track never overlap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tasks.certifying.certificate import Certificate
from tasks.trial import History, Run, Trial

ROLES = {"start": "starting", "train": "training", "judge": "judging", "propose": "proposing", "wait": "rest"}
"""Kinds of slices, with their class of the style sheet."""
SHORTEST = 1e-3
"""Seconds: a shorter slice is left out."""


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

    @property
    def end(self) -> float:
        return self.spans[-1].end


Tracks = dict[str, list[Span]]


def tracks(history: History, certificates: Sequence[Certificate], events: Iterable[Mapping[str, Any]]) -> Tracks:
    """Spans by track: as many slots as ever were busy at once, and one track for proposers and for waiting."""
    events = list(events)
    frees = [(event["number"], event["time"]) for event in events if event["event"] == "slot free"]
    jobs = [
        job for trial in history for job in _of_trial(trial, [time for number, time in frees if number == trial.number])
    ]
    jobs += [job for one in certificates for job in _of_certificate(one)]
    found: Tracks = {}
    slots: list[list[Span]] = []
    for job in sorted(jobs, key=lambda job: job.begin):
        free = next((slot for slot in slots if slot[-1].end <= job.begin), None)
        if free is None:
            slots.append(free := [])
        free += job.spans
    found |= {f"slot {number}": slot for number, slot in enumerate(slots, 1)}
    proposals = [_proposing(trial) for trial in history if trial.runs and trial.proposal.seconds > SHORTEST]
    waits = [(event["time"], str(event.get("who", ""))) for event in events if event["event"] == "waiting"]
    starts = sorted(span.begin for slot in slots for span in slot if span.kind == "start")
    ends = [(at, starts[place], who) for at, who in waits if (place := bisect_left(starts, at)) < len(starts)]
    waiting = [Span("wait", "for a slot", at, until, {"held by": who}) for at, until, who in ends]
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


def _of_trial(trial: Trial, frees: Sequence[float]) -> list[Job]:
    """Its trainings in their order, and after each the judging, with controls and the decision.

    Trainings side by side are jobs of their own; what follows the last one is the judging of all.

    Args:
        frees: When it gave a slot back, in order, which ends a judging; else that ends where the next training begins.
    """
    runs = [*trial.runs, *(rerun.run for rerun in trial.reruns if not rerun.calibrated)]
    runs = sorted((run for run in runs if run.started), key=lambda run: run.started)
    if not runs:
        return []
    name, facts = f"trial {trial.number}", {"verdict": trial.verdict.kind, "score": trial.score.value}
    jobs: list[list[Span]] = []
    for run in runs:
        free = next((job for job in jobs if job[-1].end <= run.started), None)
        if free is None:
            jobs.append(free := [])
        elif (until := _first(frees, free[-1].end, run.started)) - free[-1].end > SHORTEST:
            free.append(Span("judge", name, free[-1].end, until, facts))
        free += _of_run(run, name)
    last, over = max(jobs, key=lambda job: job[-1].end), runs[0].started + trial.wall_seconds
    if over - last[-1].end > SHORTEST:
        last.append(Span("judge", name, last[-1].end, over, facts))
    return [Job(tuple(job)) for job in jobs]


def _first(times: Sequence[float], after: float, before: float) -> float:
    """The first of these times in order between two others; else the later one."""
    place = bisect_left(times, after)
    return min(times[place], before) if place < len(times) else before


def _proposing(trial: Trial) -> Span:
    made, begin = trial.proposal, trial.runs[0].started
    facts = {"proposer": made.proposer, "model calls": made.usage.calls, "tokens": made.usage.tokens}
    return Span("propose", f"trial {trial.number}", begin - made.seconds, begin, facts)


def _of_certificate(certificate: Certificate) -> Iterator[Job]:
    """A job for each fresh run; runs of an earlier certificate are shown there."""
    fresh = sorted(
        (one for one in certificate.runs[certificate.carried :] if one.run.started), key=lambda one: one.run.started
    )
    for one in fresh:
        yield Job(tuple(_of_run(one.run, f"{one.arm}, certificate {certificate.look}")))


def _of_run(run: Run, name: str) -> Iterator[Span]:
    """Start and training; a program that was never ready has only a training."""
    end = run.started + max(run.wall_seconds, run.seconds)
    ready = min(run.started + (run.startup or 0.0), end)
    facts = {"seed": run.seed, "status": run.status, "steps": run.steps, "peak memory": run.peak_memory}
    if ready - run.started > SHORTEST:
        yield Span("start", name, run.started, ready, {"isolation": run.isolation})
    yield Span("train", name, ready, max(end, ready + SHORTEST), facts)


def _apart(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, each cut off where the next one begins."""
    ordered = sorted(spans, key=lambda span: span.begin)
    cut = [Span(a.kind, a.name, a.begin, min(a.end, b.begin), a.facts) for a, b in pairwise(ordered)]
    return [span for span in (*cut, *ordered[-1:]) if span.seconds > SHORTEST]
