"""The timeline: a slice for each time that a slot was held, as trace viewers read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flows.report.write import TIMELINE, write_report
from tests.report.test_report import stored
from tests.support.histories import search
from tests.support.ledgers import created


def test_what_a_slot_did_is_a_slice_and_what_a_kill_cut_off_is_none(tmp_path: Path, home: Path) -> None:
    ledger = stored(created(tmp_path), search(3))
    for number, slot in ((0, "cpu-0"), (1, "cpu-1")):
        ledger.event("slot", number=number, slot=slot)
    ledger.event("slot free", number=0, slot="cpu-0", start=1.0, train=18.0)
    ledger.event("life", pid=1)  # the other slot was never given back
    ledger.event("certify", look=1, champion=1, runs=3)
    ledger.event("slot", number=1, slot="cpu-1")
    ledger.event("slot free", number=1, slot="cpu-1", judge=1.0)

    write_report(ledger)

    read: dict[str, Any] = json.loads((ledger.path / TIMELINE).read_text())
    slices = [event for event in read["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["cat"]) for event in slices] == [
        ("trial 0", "train"), ("trial 1, certificate", "judge"),
    ]  # fmt: skip
    assert all(event["ts"] > 0 and event["dur"] >= 0 for event in slices)
    named = {event["tid"]: event["args"]["name"] for event in read["traceEvents"] if event["ph"] == "M"}
    assert [named[event["tid"]] for event in slices] == ["cpu-0", "cpu-1"]
