"""The timeline: nothing overlaps on a track, and the file is what trace viewers read."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flows.report.timeline import spans_by_track
from flows.report.write import TIMELINE, write_report
from tasks.trial import History
from tests.report.test_report import stored
from tests.support.histories import certified, search
from tests.support.ledgers import created


def side_by_side(count: int, starts: list[float], seed: int = 1) -> History:
    """A night whose trials begin at these times, whatever else runs."""
    history = search(count, seed)
    return tuple(
        replace(
            trial,
            proposal=replace(trial.proposal, seconds=0.7),
            runs=tuple(
                replace(run, started=1e9 + start + 20 * place, startup=1.5) for place, run in enumerate(trial.runs)
            ),
            wall_seconds=20.0 * len(trial.runs),
        )
        for trial, start in zip(history, starts, strict=False)
    )


@given(st.lists(st.floats(0, 100), min_size=8, max_size=8))
@settings(max_examples=40, deadline=None)
def test_no_two_slices_of_a_track_overlap(starts: list[float]) -> None:
    events = [{"event": "slot free", "number": 3, "time": 1e9 + 20.0 + at, "judge": 0.3} for at in starts]

    found = spans_by_track(side_by_side(7, starts), (certified(1, [1, 2], [1, 2]),), events)

    for spans in found.values():
        assert all(span.end > span.begin for span in spans)
        assert all(a.end <= b.begin + 1e-6 for a, b in pairwise(spans))


def test_the_file_is_written_with_the_report_and_holds_what_was_done(tmp_path: Path, home: Path) -> None:
    ledger = stored(created(tmp_path), side_by_side(4, [0, 100, 200, 300, 400]))
    ledger.event("slot free", number=1, slot="cpu-0", train=18.0, judge=1.0)
    write_report(ledger)

    read: dict[str, Any] = json.loads((ledger.path / TIMELINE).read_text())
    slices = [event for event in read["traceEvents"] if event["ph"] == "X"]
    assert {event["cat"] for event in slices} >= {"start", "train", "judge", "propose"}
    assert all(event["ts"] >= 0 and event["dur"] > 0 for event in slices)
    named = {event["tid"]: event["args"]["name"] for event in read["traceEvents"] if event["ph"] == "M"}
    assert {event["tid"] for event in slices} == set(named)
