"""A campaign's timeline: what ran when, derived from the times of its trials, certificates and events.

As timeline.json it opens in Perfetto (ui.perfetto.dev) or chrome://tracing. Nothing is recorded for it, and it is
valid at any moment of a running campaign. Slices of one track never overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tasks.stats.certificate import Certificate
from tasks.trial import History, Run

SHORTEST, CLOSE = 1e-3, 0.5
"""Seconds: a shorter slice is left out; and by how much one may begin before the last one of its slot has ended."""


@dataclass(frozen=True)
class Span:
    """One thing that was done, in seconds of Unix time."""

    kind: str
    """start, train, judge, propose, or wait (for a slot)."""
    name: str
    begin: float
    end: float
    facts: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        return self.end - self.begin


Tracks = dict[str, list[Span]]


def tracks(history: History, certificates: Sequence[Certificate], events: Iterable[Mapping[str, Any]]) -> Tracks:
    """Spans by track: as many slots as ever were busy at once, and one track for proposers and for waiting."""
    events, slots = list(events), list[list[Span]]()
    for job in sorted([*_runs(history, certificates), *_judgements(history, events)], key=lambda job: job[0].begin):
        over = [slot for slot in slots if slot[-1].end <= job[0].begin + CLOSE]
        if not over:
            slots.append([])
        slot = max(over or slots[-1:], key=lambda slot: slot[-1].end if slot else 0.0)
        last = slot[-1].end if slot else 0.0  # two clocks that are rounded may overlap a little
        slot += [replace(span, begin=max(span.begin, last)) for span in job if span.end > last]
    found = {f"slot {number}": slot for number, slot in enumerate(slots, 1)}
    beside = {"proposer": list(_proposing(history)), "waiting": list(_waits(events))}
    return found | {name: _apart(spans) for name, spans in beside.items() if spans}


def chrome(tracks: Tracks, slot_use: Mapping[str, float]) -> dict[str, Any]:
    """The tracks in the trace event format, with the shares of the slots' time; microseconds from the first span."""
    start = min((span.begin for spans in tracks.values() for span in spans), default=0.0)
    events: list[dict[str, Any]] = []
    for tid, (track, spans) in enumerate(tracks.items(), 1):
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": track}})
        for span in spans:
            times = {"ts": round((span.begin - start) * 1e6), "dur": round(span.seconds * 1e6)}
            what = {"name": f"{span.kind} {span.name}", "cat": span.kind, "args": dict(span.facts)}
            events.append({"ph": "X", "pid": 1, "tid": tid, **times, **what})
    about = {"unix seconds of the start": start, "slot use": dict(slot_use)}
    return {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}


def _runs(history: History, certificates: Sequence[Certificate]) -> Iterator[list[Span]]:
    """The spans of each training run; runs of an earlier certificate are shown there."""
    for trial in history:
        for run in (*trial.runs, *(rerun.run for rerun in trial.reruns)):
            if run.started:
                yield _of_run(run, f"trial {trial.number}")
    for one in certificates:
        for fresh in one.runs[one.carried :]:
            if fresh.run.started:
                yield _of_run(fresh.run, f"{fresh.arm}, certificate {one.look}")


def _of_run(run: Run, name: str) -> list[Span]:
    """Start and training; a program that was never ready has only a training."""
    end = run.started + max(run.wall_seconds, run.seconds)
    ready = min(run.started + (run.startup or 0.0), end)
    facts = {"seed": run.seed, "status": run.status, "steps": run.steps, "peak memory": run.peak_memory}
    start = Span("start", name, run.started, ready, {"isolation": run.isolation})
    train = Span("train", name, ready, max(end, ready + SHORTEST), facts)
    return [start, train] if start.seconds > SHORTEST else [train]


def _judgements(history: History, events: Sequence[Mapping[str, Any]]) -> Iterator[list[Span]]:
    """Each judgement: it ends when its trial gives the slot back. Older campaigns did not note it."""
    facts = {trial.number: {"verdict": trial.verdict.kind, "score": trial.score.value} for trial in history}
    for event in events:
        if event["event"] == "slot free" and event.get("judge", 0.0) > SHORTEST:
            number, end = event["number"], event["time"]
            yield [Span("judge", f"trial {number}", end - event["judge"], end, facts.get(number, {}))]


def _proposing(history: History) -> Iterator[Span]:
    for trial in history:
        if trial.runs and trial.proposal.seconds > SHORTEST:
            made, begin = trial.proposal, trial.runs[0].started
            facts = {"proposer": made.proposer, "model calls": made.usage.calls, "tokens": made.usage.tokens}
            yield Span("propose", f"trial {trial.number}", begin - made.seconds, begin, facts)


def _waits(events: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
    """From when a trial waits for a slot until it has one; what waits at the end is left out."""
    waits: dict[int, Mapping[str, Any]] = {}  # by trial: it tells every new reason, of which the first counts
    for event in events:
        if event["event"] == "life":
            waits = {}
        elif event["event"] == "waiting":
            waits.setdefault(event["number"], event)
        elif event["event"] == "slot" and (began := waits.pop(event["number"], None)):
            name, facts = f"trial {event['number']}, for a slot", {"held by": str(began.get("who", ""))}
            yield Span("wait", name, began["time"], event["time"], facts)


def _apart(spans: Sequence[Span]) -> list[Span]:
    """The spans in order, each cut off where the next one begins."""
    ordered = sorted(spans, key=lambda span: span.begin)
    cut = [replace(one, end=min(one.end, after.begin)) for one, after in pairwise(ordered)]
    return [span for span in (*cut, *ordered[-1:]) if span.seconds > SHORTEST]
