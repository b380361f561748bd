"""What each slot did when, by the events of a campaign: timeline.json, for Perfetto (ui.perfetto.dev)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tasks.trial import History


def trace(history: History, events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A slice for each time that a slot was held, in the trace event format: microseconds of Unix time.

    A slot that a kill has freed has none.
    """
    verdicts = {trial.number: {"verdict": trial.verdict.kind, "score": trial.score.value} for trial in history}
    held, tracks, slices, purpose = dict[str, float](), dict[str, int](), list[dict[str, Any]](), ""
    for event in events:
        track = " on ".join(filter(None, (event.get("slot", ""), event.get("on", ""))))
        match event["event"]:
            case "life":
                held, purpose = {}, ""
            case "certify":
                purpose = ", certificate"
            case "certified":
                purpose = ""
            case "slot":
                held[track] = event["time"]
            case "slot free" if track in held:
                begin, number = held.pop(track), event["number"]
                work = {name: event[name] for name in ("start", "train", "judge") if name in event}
                slices.append(
                    {"ph": "X", "pid": 1, "tid": tracks.setdefault(track, len(tracks) + 1), "ts": round(begin * 1e6)}
                    | {"dur": round((event["time"] - begin) * 1e6), "name": f"trial {number}{purpose}"}
                    | {"cat": max(work, key=work.__getitem__, default="none"), "args": work | verdicts.get(number, {})}
                )
    about = {"ph": "M", "pid": 1, "name": "thread_name"}
    names = [about | {"tid": tid, "args": {"name": track}} for track, tid in tracks.items()]
    return {"displayTimeUnit": "ms", "traceEvents": [*names, *slices]}
