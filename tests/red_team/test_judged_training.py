"""The red team trains while it is judged, where nobody counts its steps: before it is ready, or as it answers.

Each program plays honestly, and spends processor time besides. The canary: it has no score, for what it spent.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from environments.effort import Allowance, Effort

from environments.score import Score
from environments.space import Value
from tasks.evaluate import judge_run
from tasks.sandbox import outputs
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tests.support.levels import SANDBOXED, STRONGEST, STRONGEST_AND_NONE, WORKING, fast_at
from tests.support.red_team_policy import MARKER, SEED, trained

NEED = Effort(ready=0.02, answering=0.02, answers=50, ready_wait=0.5, answer_wait=0.5, longest_wait=0.1)
"""That of an honest program in plain Python, on a busy machine."""
TIGHT = Allowance.of([NEED], 5.0)
"""Less than half a second in all."""
SPENDING = """
import threading
def spend(seconds):
    ends = time.thread_time() + seconds
    while time.thread_time() < ends: pass
def begin(seconds):
    threading.Thread(target=spend, args=(seconds,), daemon=True).start()
def each(seconds, count=30):
    say(READY)
    for _ in range(count):
        data = frame()
        spend(seconds)
        say(move(data))
    play()
"""
ATTACKS = {
    "before it is ready": "spend(30)\nsay(READY)\nplay()",
    "a little before each answer": "each(0.1)",
    "at its first answer": "each(3, 1)",
    "in a thread while it answers": "begin(30)\neach(0.02)",
    "in many threads": "[begin(30) for _ in range(8)]\neach(0.02)",
    "in many processes": "for _ in range(8):\n    if not os.fork(): spend(0.4); os._exit(0)\n"
    "for _ in range(8): os.wait()\nsay(READY)\nplay()",
    "in a process left behind": "if not os.fork():\n    os.setsid()\n    if not os.fork(): spend(30)\n    os._exit(0)\n"
    "os.wait()\ntime.sleep(6)\nsay(READY)\nplay()",
    "in bursts, asleep most of the time": "for _ in range(30): spend(0.1); time.sleep(0.05)\nsay(READY)\nplay()",
    "in another program": "subprocess.run([sys.executable, '-c', 'for _ in range(2 * 10**8): pass'])\nsay(READY)\nplay()",
}


def score(
    folder: Path, act: str, level: Level, allowance: Allowance | None = TIGHT, checkpoint: str = "", **settings: Value
) -> Score:
    """What the judge makes of the program, with this text as its checkpoint."""
    environment, place, run = trained(folder, SPENDING + act, level, **settings)
    (place.out / "model.bin").write_text(checkpoint)
    run = replace(run, checkpoint=outputs.checkpoint(place.out))
    return judge_run(MARKER, environment, Isolation(level), place, run, SEED, allowance=allowance)


def is_caught(found: Score) -> bool:
    return found.value is None and "of processor time, more than" in (found.error or "").splitlines()[0]


@pytest.mark.parametrize("level", STRONGEST)
@pytest.mark.parametrize("how", ATTACKS)
def test_red_team_training_under_judgement_is_a_crash(tmp_path: Path, level: Level, how: str) -> None:
    """Wherever it computes, it has spent more than the baseline's need and a margin."""
    found = score(tmp_path, ATTACKS[how], level, **{"control.start_seconds": 60, "control.total_seconds": 60})
    assert is_caught(found), (found.value, found.error, found.effort)


@pytest.mark.parametrize("level", fast_at(SANDBOXED[:1], SANDBOXED))
def test_red_team_a_child_that_nobody_waits_for_is_counted_all_the_same(tmp_path: Path, level: Level) -> None:
    """The kernel forgets what a child has spent when its parent ignores SIGCHLD; a short one is never looked at."""
    act = (
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "hear, done = os.pipe()\n"
        "for _ in range(16):\n"
        "    if not os.fork(): spend(0.1); os.write(done, b'.'); os._exit(0)\n"
        "    os.read(hear, 1)\n"
        "time.sleep(0.1)\nsay(READY)\nplay()"
    )
    assert is_caught(score(tmp_path, act, level))


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
    assert is_caught(score(tmp_path / "bounded", LEARNER, level, checkpoint="2000000"))
    if level == WORKING[0]:  # the attack works where nothing bounds it
        free = score(tmp_path / "free", LEARNER, level, None, checkpoint="200000")
        assert free.value is not None and free.value > 150, free.error


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_an_honest_program_is_far_within_its_allowance(tmp_path: Path, level: Level) -> None:
    """Also the tight one, with sleep, threads and processes that wait."""
    act = "begin(0)\nif not os.fork(): time.sleep(0.2); os._exit(0)\nos.wait()\ntime.sleep(0.5)\nsay(READY)\nplay()"
    found = score(tmp_path, act, level)
    assert found.value is not None, found.error
    assert found.effort is not None
    assert found.effort.answers > 5 and 0 < found.effort.ready < TIGHT.until_ready
    assert found.effort.ready_wait > 0.5 and found.effort.longest_wait <= found.effort.answer_wait


@pytest.mark.parametrize("level", SANDBOXED)
def test_a_program_that_sets_a_handler_for_its_children_still_waits_for_them(tmp_path: Path, level: Level) -> None:
    """Setting it has no effect under judgement, and nothing else fails for it: shells and subprocesses work."""
    act = (
        "signal.signal(signal.SIGCHLD, lambda *_: None)\n"
        "tell('shell', got=subprocess.run(['bash', '-c', 'true & wait; echo $(echo done)'], capture_output=True, "
        "text=True).stdout)\n"
        "say(READY)\nplay()"
    )
    environment, place, run = trained(tmp_path, act, level)
    found = judge_run(MARKER, environment, Isolation(level), place, run, SEED)
    assert found.value is not None, found.error
    lines = [line[1:] for line in place.judge_log.read_text().splitlines() if line.startswith("@")]
    assert {"name": "shell", "got": "done\n"} in [json.loads(line) for line in lines]
