"""A campaign's timeline: what ran when, derived from the times of its trials, certificates and events.

As timeline.json it opens in Perfetto (ui.perfetto.dev) or chrome://tracing. Nothing is recorded for it, and it is
valid at any moment of a running campaign. Slices of one track never overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.stats.certificate import Certificate
from tasks.trial import History, Run

SHORTEST, CLOSE = 1e-3, 0.5
"""Seconds: a shorter slice is left out; and by how much one may begin before the last one of its track has ended."""


@dataclass(frozen=True)
class Span:
    """One thing that was done, in seconds of Unix time."""

    kind: str
    """start, train, judge, or propose."""
    name: str
    begin: float
    end: float
    facts: Mapping[str, Any]


def trace(history: History, certificates: Sequence[Certificate], events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What ran when, in the trace event format; microseconds from the first span."""
    tracks = spans_by_track(history, certificates, events)
    start = min((span.begin for spans in tracks.values() for span in spans), default=0.0)
    found: list[dict[str, Any]] = []
    for tid, (track, spans) in enumerate(tracks.items(), 1):
        found.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": track}})
        for span in spans:
            times = {"ts": round((span.begin - start) * 1e6), "dur": round((span.end - span.begin) * 1e6)}
            what = {"name": f"{span.kind} {span.name}", "cat": span.kind, "args": dict(span.facts)}
            found.append({"ph": "X", "pid": 1, "tid": tid, **times, **what})
    return {"displayTimeUnit": "ms", "otherData": {"unix seconds of the start": start}, "traceEvents": found}


def spans_by_track(
    history: History, certificates: Sequence[Certificate], events: Iterable[Mapping[str, Any]]
) -> dict[str, list[Span]]:
    """Spans by track: as many tracks of a kind as its spans need to lie beside each other."""
    events = list(events)
    groups = {
        "run": [*_runs(history, certificates), *_judgements(history, events)],
        "proposer": list(_proposing(history)),
    }
    found: dict[str, list[Span]] = {}
    for track, spans in groups.items():
        lanes: list[list[Span]] = []
        for span in sorted(spans, key=lambda span: span.begin):
            free = [lane for lane in lanes if lane[-1].end <= span.begin + CLOSE]
            lane = max(free, key=lambda lane: lane[-1].end, default=[])
            begin = (
                max(span.begin, lane[-1].end) if lane else span.begin
            )  # clocks that are rounded may overlap a little
            if span.end - begin > SHORTEST:
                lanes += [] if lane else [lane]
                lane.append(replace(span, begin=begin))
        found |= {f"{track} {number}": lane for number, lane in enumerate(lanes, 1)}
    return found


def _runs(history: History, certificates: Sequence[Certificate]) -> Iterator[Span]:
    """Start and training of each run; runs of an earlier certificate are shown there."""
    named = [(run, f"trial {trial.number}") for trial in history for run in trial.runs]
    named += [(rerun.run, f"trial {trial.number}, rerun") for trial in history for rerun in trial.reruns]
    for one in certificates:
        named += [(fresh.run, f"{fresh.arm}, certificate {one.look}") for fresh in one.runs[one.carried :]]
    for run, name in named:
        if run.started:
            yield from _of_run(run, name)


def _of_run(run: Run, name: str) -> Iterator[Span]:
    end = run.started + max(run.wall_seconds, run.seconds)
    ready = min(run.started + (run.startup or 0.0), end)
    facts = {"seed": run.seed, "status": run.status, "steps": run.steps, "peak memory": run.peak_memory}
    yield Span("start", name, run.started, ready, {"isolation": run.isolation})
    yield Span("train", name, ready, end, facts)


def _judgements(history: History, events: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
    """Each judgement: it ends when its trial gives the slot back. Older campaigns did not note it."""
    facts = {trial.number: {"verdict": trial.verdict.kind, "score": trial.score.value} for trial in history}
    for event in events:
        if event["event"] == "slot free":
            number, end = event["number"], event["time"]
            yield Span("judge", f"trial {number}", end - event.get("judge", 0.0), end, facts.get(number, {}))


def _proposing(history: History) -> Iterator[Span]:
    for trial in history:
        if trial.runs:
            made, begin = trial.proposal, trial.runs[0].started
            facts = {"proposer": made.proposer, "model calls": made.usage.calls, "tokens": made.usage.tokens}
            yield Span("propose", f"trial {trial.number}", begin - made.seconds, begin, facts)
