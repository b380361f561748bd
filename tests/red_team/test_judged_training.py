"""The red team trains while it is judged, where nobody counts its steps: before it is ready, or as it answers.

Each program plays honestly, and computes besides. The canary: it has no score, because the judge has waited for it for
longer than it may. What it computes while the judge steps the environments is not bounded (docs/sandbox.md).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from environments.score import SPARE_SECONDS, TIMES, Score, Wait
from tasks.evaluate import judge_run
from tasks.sandbox import outputs
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tests.support.levels import STRONGEST_AND_NONE
from tests.support.red_team_policy import MARKER, SEED, trained

TIGHT = Wait((5.0 - SPARE_SECONDS) / TIMES, 0.0, 0)  # five seconds
"""Seconds: far more than an honest program in plain Python needs, on a busy machine too."""
SPENDING = """
def spend(seconds):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends: pass
def each(seconds):
    say(READY)
    for _ in range(30):
        data = frame()
        spend(seconds)
        say(move(data))
    play()
"""
ATTACKS = {"before it is ready": "spend(30)\nsay(READY)\nplay()", "a little before each answer": "each(0.5)"}


def score(folder: Path, act: str, level: Level, need: Wait | None = TIGHT, checkpoint: str = "") -> Score:
    """What the judge makes of the program, with this text as its checkpoint."""
    patience = {"control.start_seconds": 60, "control.answer_seconds": 10, "control.total_seconds": 60}
    environment, place, run = trained(folder, SPENDING + act, level, **patience)
    (place.out / "model.bin").write_text(checkpoint)
    run = replace(run, checkpoint=outputs.checkpoint(place.out))
    return judge_run(MARKER, environment, Isolation(level), place, run, SEED, need=need)


def is_caught(found: Score) -> bool:
    return found.value is None and "by what the baseline needed" in (found.error or "").splitlines()[0]


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
@pytest.mark.parametrize("how", ATTACKS)
def test_red_team_training_under_judgement_is_a_crash(tmp_path: Path, level: Level, how: str) -> None:
    found = score(tmp_path, ATTACKS[how], level)
    assert is_caught(found), (found.value, found.error)


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_an_honest_program_is_within_its_allowance_and_how_long_it_took_is_kept(tmp_path: Path, level: Level) -> None:
    found = score(tmp_path, "time.sleep(0.5)\neach(0.01)", level)
    assert found.waited is not None, found.error
    assert 0.5 < found.waited.ready + found.waited.answering < 5.0
