"""A training run that is cancelled: its curve, who is asked when, and how programs take it."""

from __future__ import annotations

from pathlib import Path

import pytest

import environments
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tasks.store.workspace import TrialDir
from tasks.train import ReasonToStop, run_program
from tasks.trial import TWENTIETHS, EarlyStop, Proposal, Run
from tests.support.levels import STRONGEST_AND_NONE
from tests.support.toy import SANDBOX, quadratic

START = """\
import json, pathlib, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
progress = (out / "progress.jsonl").open("w", buffering=1)
def report(step, loss=None):
    metrics = {} if loss is None else {"loss": loss}
    print(json.dumps({"step": step, "metrics": metrics}), file=progress)
def save():
    (out / "model.json").write_text(json.dumps({"x": 1.0}))
"""
LISTENS = (
    START
    + """\
for step in range(1, 101):
    report(step, 100.0 - step)
    time.sleep(0.02 if step < 45 else 0.5)
    if pathlib.Path("cancel").exists():
        print("told:", pathlib.Path("cancel").read_text(), flush=True)
        sys.exit(42)
save()
"""
)
"""Two seconds at least, by a hundred steps; ends when it is told to."""


def train(
    tmp_path: Path,
    program: str,
    reason_to_stop: ReasonToStop | None = None,
    isolation: Isolation = SANDBOX,
    **settings: float,
) -> Run:
    folder = quadratic(tmp_path / "env", fit=program)
    environment = environments.load(folder, {"budget_seconds": 30, **settings})
    place, proposal = TrialDir(tmp_path / "trials/0001"), Proposal({"x": 1.0})
    return run_program(
        "test/cancel", environment, isolation, folder, place, proposal, seed=7, reason_to_stop=reason_to_stop
    )


def after(twentieths: int) -> ReasonToStop:
    """Asks for an end once so much of the budget has passed."""
    return lambda curve: f"{curve[-1]} is too much" if len(curve) >= twentieths else None


def test_a_curve_holds_what_was_last_reported_at_each_twentieth_of_the_time(tmp_path: Path) -> None:
    program = START + "report(0, 3.0)\ntime.sleep(1.2)\nreport(1, 2.0)\nsave()\ntime.sleep(30)"
    run = train(tmp_path, program, budget_seconds=4.0)
    assert run.status == "finished", run.error
    assert len(run.curve) == TWENTIETHS
    assert run.curve[0] == 3.0 and sorted(run.curve, reverse=True) == [*run.curve]
    assert (run.curve[-1], run.reported) == (2.0, 2.0)
    assert set(run.curve) == {3.0, 2.0}


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_a_program_that_finds_the_file_and_ends_is_cancelled(tmp_path: Path, level: Level) -> None:
    run = train(tmp_path, LISTENS, after(8), isolation=Isolation(level), budget_steps=100)
    assert (run.status, run.error, run.checkpoint) == ("cancelled", None, None)
    assert run.due == EarlyStop(0.4, "60.0 is too much")
    assert run.curve[:8] == tuple(100.0 - 5 * n for n in range(1, 9))
    assert run.reported is not None and run.steps is not None and 40 <= run.steps < 100
    assert "told: 60.0 is too much" in (tmp_path / "trials/0001/log.txt").read_text()
    assert run.program is not None


def test_a_program_that_ignores_the_file_is_stopped_after_the_grace(tmp_path: Path) -> None:
    program = (
        START + "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('asked to stop', flush=True))\n"
        "report(20, 1.0)\nsave()\nwhile True: time.sleep(1)"
    )
    run = train(tmp_path, program, after(4), budget_steps=100, grace_seconds=0.3)
    assert (run.status, run.error, run.checkpoint) == ("cancelled", None, None)
    assert run.due == EarlyStop(0.2, "1.0 is too much")
    assert run.seconds >= 0.6  # a grace for the file, and one for the signal
    assert "asked to stop" in (tmp_path / "trials/0001/log.txt").read_text()


@pytest.mark.parametrize(
    ("takes_it", "end"),
    [
        ("fails", "sys.exit(3)"),
        ("ends well", "save(); sys.exit(0)"),
        ("reports nonsense", "print('nonsense', file=progress); sys.exit(42)"),
        ("leaves a process", "__import__('subprocess').Popen(['sleep', '99']); sys.exit(42)"),
    ],
)
def test_however_a_program_takes_it_the_run_is_cancelled_and_no_crash(tmp_path: Path, takes_it: str, end: str) -> None:
    program = START + f"report(20, 1.0)\nwhile not pathlib.Path('cancel').exists(): time.sleep(0.01)\n{end}\n"
    run = train(tmp_path, program, after(4), budget_steps=100, grace_seconds=10)
    assert (run.status, run.error, run.checkpoint) == ("cancelled", None, None), takes_it
