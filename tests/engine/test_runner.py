"""What the runner knows of the baseline, and what it counts as a trial's time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from environments.score import Score
from tasks.machine.slot_layout import Layout, here
from tests.support.histories import tried
from tests.support.noisy import campaign, noisy
from tests.support.runners import bench


def test_what_is_lent_is_the_baselines_first_run_with_a_score(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    known = tried((), 0.0, 1.0, 2.0)
    each = (Score.missing("no luck", True), *known.score.each[1:])
    runner = bench(ledger, (replace(known, score=Score.over(each, fewest=2)),))

    place, seed, score = runner._lender

    assert place == ledger.place(0, "run-2")
    assert seed == ledger.seed("search", ledger.at(0, "run-2"))
    assert score == each[1]


def test_waiting_for_a_slot_is_no_time_of_a_trial(tmp_path: Path) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    runner = replace(bench(ledger, ()), slots=here(tmp_path, ledger.environment, Layout(cpu_slots=1)))
    held = threading.Event()

    def holds_it() -> None:
        with runner.slots.hold(print):
            held.set()
            time.sleep(0.5)

    other = threading.Thread(target=holds_it)
    other.start()
    held.wait(10)
    began = time.monotonic()
    with runner._slot(ledger.at(1), ledger.place(1), "train"):
        waited = time.monotonic() - began
    other.join()
    assert 0.2 < runner.queued_seconds <= waited
