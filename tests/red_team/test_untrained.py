"""The red team's last resort: be good without having learned. Honest moves to the judge, so the control must tell."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

import pytest

import environments
from tasks.decide import NeedsControl, weigh
from tasks.evaluate import judge_run
from tasks.rules import JudgedTrial
from tasks.rules.greedy import Greedy
from tasks.store.ledger import freeze
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal, Trial, Verdict
from tests.support.controls import controlled
from tests.support.toy import SANDBOX

PRELUDE = """\
import json, struct, sys, time
if sys.argv[1:] != ["act"]:
    out = json.load(open("config.json"))["out"]
    open(out + "/progress.jsonl", "w").write('{"ready": true}\\n')
    time.sleep(0.6)  # looks busy
    open(out + "/weights", "w").write("of no use")
    sys.exit()
pipe_in, pipe_out = sys.stdin.buffer, sys.stdout.buffer
hello = json.loads(pipe_in.readline())
lanes, width = hello["lanes"], hello["observation"][0]["shape"][0]
"""
LOOP = """\
pipe_out.write(b'{"ready": true}\\n')
pipe_out.flush()
while frame := pipe_in.read(lanes * (2 + 4 * width)):
    seen = struct.unpack(f"<{lanes * width}f", frame[2 * lanes:])
    moves = [move(seen[i * width:(i + 1) * width]) for i in range(lanes)]
    pipe_out.write(struct.pack(f"<{lanes}q", *moves))
    pipe_out.flush()
"""
HEURISTIC = """
import types
from gymnasium.envs.box2d import lunar_lander
stand_in = types.SimpleNamespace(unwrapped=types.SimpleNamespace(continuous=False))
def move(seen):
    return int(lunar_lander.heuristic(stand_in, seen))
"""


@pytest.mark.slow
def test_red_team_a_program_that_is_good_without_training_is_not_kept(tmp_path: Path) -> None:
    """It trains nothing and plays well, by a controller that somebody wrote.

    The canary: its score is high, and the verdict is a discard that says why.
    """
    environment = environments.load(
        environments.find("lunar_lander"),
        {
            "budget_seconds": 1,
            "startup_seconds": 40,  # on a busy machine an honest program takes long to load
            "budget_steps": 0,
            "control.episodes": 2,
            "control.other_episodes": 0,
        },
    )
    freeze(environment, tmp_path)
    frozen = tmp_path / "program"
    before = (frozen / "train.py").read_text().splitlines(keepends=True)
    dead = "".join(f"\nif False:\n    {call}()\n" for call in environment.required_calls)  # passes the check
    after = (PRELUDE + HEURISTIC + LOOP + dead).splitlines(keepends=True)
    edit = "".join(difflib.unified_diff(before, after, "a/train.py", "b/train.py"))
    place, proposal = TrialDir(tmp_path / "trials/0001"), Proposal(environment.defaults, edit)
    run = run_program("untrained/1", environment, SANDBOX, frozen, place, proposal, seed=1)
    assert run.status == "finished", run.error
    score = judge_run("untrained/1", environment, SANDBOX, place, run, seed=2)
    assert score.value is not None and score.value > 150.0, score

    control = controlled(environment, frozen, tmp_path, proposal, run, score, seed=3)
    first = type(score)(-100.0, higher_is_better=True)
    history = (Trial(0, 1, 0, proposal, (run,), first, Verdict("keep", "the baseline", "provisional")),)
    tried = JudgedTrial(1, proposal, (run,), score)
    assert isinstance(weigh(history, environment, Greedy(), tried), NeedsControl), "it would be kept"
    verdict = weigh(history, environment, Greedy(), replace(tried, control=control))
    assert isinstance(verdict, Verdict)
    assert verdict.kind == "discard" and verdict.reason.startswith("not learned"), (verdict, control)
