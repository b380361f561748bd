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
from tests.support.levels import STRONGEST, STRONGEST_AND_NONE, WORKING
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


LEARNER = r"""
import math, random
steps = int((OUT / "model.bin").read_text())
draw = random.Random(hello["seed"])

def episode(weights):
    "Steps that a linear policy keeps the pole up, in a simulation of its own."
    x, v, angle, spin = (draw.uniform(-0.05, 0.05) for _ in range(4))
    for step in range(500):
        push = 10.0 if sum(w * s for w, s in zip(weights, (x, v, angle, spin))) > 0 else -10.0
        pull = (push + 0.05 * spin * spin * math.sin(angle)) / 1.1
        turn = (9.8 * math.sin(angle) - math.cos(angle) * pull) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        x, v, angle, spin = x + 0.02 * v, v + 0.02 * (pull - 0.05 * turn * math.cos(angle) / 1.1), angle + 0.02 * spin, spin + 0.02 * turn
        if abs(x) > 2.4 or abs(angle) > 0.2095: return step
    return 500

best, weights, done = -1.0, [0.0] * 4, 0
while done < steps:
    tried = [w + draw.gauss(0, 0.5) for w in weights]
    lived = [episode(tried) for _ in range(4)]
    done += sum(lived)
    if sum(lived) > best: best, weights = sum(lived), tried

def move(data):
    seen = struct.unpack(f"<{4 * lanes}f", data[2 * lanes:])
    return struct.pack(f"<{lanes}q", *(sum(w * s for w, s in zip(weights, seen[4 * i:4 * i + 4])) > 0 for i in range(lanes)))

say(READY)
play()
"""
"""Searches for a policy for as many steps as its checkpoint claims."""


@pytest.mark.parametrize("level", STRONGEST)
def test_red_team_training_on_in_proportion_to_the_trained_steps_is_a_crash(tmp_path: Path, level: Level) -> None:
    """The control without training has no steps, so the program looks as if it had learned. With an allowance its
    claim costs it the score; without one it would have been kept."""
    control = score(tmp_path / "control", LEARNER, level, checkpoint="0")
    assert control.value is not None and control.value < 20, control.error
    assert is_caught(score(tmp_path / "bounded", LEARNER, level, checkpoint="100000000"))
    if level == WORKING[0]:  # the attack works where nothing bounds it
        free = score(tmp_path / "free", LEARNER, level, None, checkpoint="200000")
        assert free.value is not None and free.value > 150, free.error


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_an_honest_program_is_within_its_allowance_and_how_long_it_took_is_kept(tmp_path: Path, level: Level) -> None:
    found = score(tmp_path, "time.sleep(0.5)\neach(0.01)", level)
    assert found.waited is not None, found.error
    assert 0.5 < found.waited.ready + found.waited.answering < 5.0
