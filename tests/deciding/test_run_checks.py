"""What a finished run cannot be, looked at by itself and next to the earlier ones."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import Environment
from environments.limits import Limits
from environments.score import Score
from tasks import run_checks
from tasks.run_checks import same_play
from tasks.trial import Params, Proposal, Run, Trial, Verdict
from tests.support.toy import quadratic

STARTED = 1.7e9
FINE = Run(
    "trials/0001", 1, 5.0, "finished", steps=1000, started=STARTED, wall_seconds=6.0, program="p", checkpoint="c"
)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A problem with a budget of 5 seconds, no budget of steps, and training that draws at random."""
    toy = environments.load(quadratic(tmp_path / "quadratic"))
    return toy.model_copy(update={"deterministic": False, "limits": Limits()})


def trial(number: int, run: Run, params: Params) -> Trial:
    return Trial(number, 1, number, Proposal(params), (run,), Score(0.5), Verdict("discard", "not better"))


@pytest.mark.parametrize(
    ("run", "more", "written", "words"),
    [
        (FINE, {}, 4.0, None),
        (
            replace(FINE, seconds=0.0049),
            {},
            4.0,
            r"trained for 0.0049 s, too short .*at least 0.005 s.*lower least_sec",
        ),
        (replace(FINE, seconds=0.0, steps=19_992), {"budget_steps": 20_000}, 4.0, None),
        (replace(FINE, seconds=0.0, steps=None), {"limits": Limits(least_seconds=0)}, 4.0, None),
        (FINE, {}, -1.9, None),
        (FINE, {}, -3600.0, "is 3600 s older than the run"),
        (replace(FINE, steps=110_000 + 65_536), {"budget_steps": 100_000}, 4.0, None),
        (
            replace(FINE, steps=110_001 + 65_536),
            {"budget_steps": 100_000},
            4.0,
            r"reported 175,537 steps of a budget of",
        ),
    ],
)
def test_a_run_that_cannot_be_is_a_crash_with_the_reason(
    run: Run, more: dict[str, Any], written: float, words: str | None, environment: Environment, tmp_path: Path
) -> None:
    """By its time, its steps, and when its checkpoint was written, from its start."""
    out = tmp_path / run.dir / "out"
    out.mkdir(parents=True)
    (out / "model.json").write_text("{}")
    os.utime(out / "model.json", (STARTED + written,) * 2)
    found = run_checks.plausible(environment.model_copy(update=more), run, tmp_path)
    assert found == run if words is None else found.status == "crash" and re.search(words, found.error or "")


@pytest.mark.parametrize(
    ("changes", "params", "words"),
    [
        ({"seed": 2}, {"x": 1}, r"^ignores its seed: its checkpoint is that of trial 4, .*set deterministic = true"),
        ({"seed": 2}, {"x": 2}, r"^its checkpoint is that of trial 4, byte for byte, though they differ in x, seed:"),
        ({"program": "q"}, {"x": 1}, r"differ in program: save what this very run has trained"),
        ({"program": "q", "seed": 2}, {"x": 2, "y": 0}, r"differ in program, x, y, seed:"),
        ({}, {"x": 1}, None),  # the very same run, and it came out the same
        ({"program": None}, {"x": 1}, None),  # of an older ledger
        ({"checkpoint": "other", "seed": 2}, {"x": 2}, None),
        ({"checkpoint": None, "seed": 2}, {"x": 2}, None),
    ],
)
def test_a_checkpoint_that_was_seen_before_is_not_believed_of_another_run(
    changes: dict[str, Any], params: Params, words: str | None, environment: Environment, tmp_path: Path
) -> None:
    history = (
        trial(3, replace(FINE, checkpoint="x"), {"x": 9}), trial(4, replace(FINE, dir="trials/0004", **changes), params),
    )  # fmt: skip
    found = run_checks.plausible_beside(environment, history, Proposal({"x": 1}), FINE, tmp_path)
    assert found is FINE if words is None else re.search(words, found.error or "")


def test_where_training_draws_nothing_at_random_runs_may_come_out_the_same(
    environment: Environment, tmp_path: Path
) -> None:
    history = (trial(4, replace(FINE, dir="trials/0004", seed=2), {"x": 1}),)
    drawing_nothing = environment.model_copy(update={"deterministic": True})
    assert run_checks.plausible_beside(environment, history, Proposal({"x": 1}), FINE, tmp_path).error
    assert run_checks.plausible_beside(drawing_nothing, history, Proposal({"x": 1}), FINE, tmp_path) is FINE


def test_runs_of_the_same_proposal_are_compared_before_any_trial_holds_them(
    environment: Environment, tmp_path: Path
) -> None:
    for run, words in (
        (replace(FINE, seed=2), "ignores its seed: its checkpoint is that of another run of it, byte for byte"),
        (replace(FINE, seed=3, checkpoint="d"), ""),
    ):
        found = run_checks.plausible_beside(environment, (), Proposal({"x": 1}), run, tmp_path, (FINE,))
        assert (found.error or "").startswith(words) and (found is run) == (not words)


@pytest.mark.parametrize(
    ("echo", "progress", "reason"),
    [
        ((1.0, 2.0, 3.0), (5.0, 6.0, 7.0), "ignores its seed"),
        ((1.0, 2.0, 3.0), (5.0, 5.0, 5.0), "learned nothing"),
        ((1.0, 2.0, 3.0), (5.0, 6.0, 8.0), None),
        ((1.0, 2.0, 4.0), (5.0, 6.0, 7.0), None),
        ((), (5.0, 6.0, 7.0), None),
    ],
)
def test_a_program_that_plays_alike_under_two_seeds_is_told_by_what_it_does(
    tmp_path: Path, echo: tuple[float, ...], progress: tuple[float, ...], reason: str | None
) -> None:
    """Its files may differ: an archive holds a date."""
    runs = [Run("trials/0000", 1, 5.0, "finished"), Run("trials/0000-run-2", 2, 5.0, "finished")]
    first = (5.0, 5.0, 5.0) if len(set(progress)) == 1 else (5.0, 6.0, 7.0)
    for run, values in zip(runs, (first, progress), strict=True):
        (tmp_path / run.dir / "out").mkdir(parents=True)
        lines = [json.dumps({"step": n, "metrics": {"return": value}}) for n, value in enumerate(values)]
        (tmp_path / run.dir / "out" / "progress.jsonl").write_text("\n".join(lines))
    scores = Score.of((1.0, 2.0, 3.0), True), replace(Score.of((7.0, 8.0, 9.0), True), echo=echo)
    found = same_play(tmp_path, "return", (runs[1], scores[1]), (runs[0], scores[0]))
    assert (found or "").partition(":")[0] == (reason or "")


def test_equal_results_at_a_ceiling_tell_nothing(tmp_path: Path) -> None:
    run, top = Run("trials/0000", 1, 5.0, "finished"), Score.of((500.0, 500.0), True)
    assert same_play(tmp_path, "return", (run, replace(top, echo=top.units)), (run, top)) is None
