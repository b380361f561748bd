"""What a finished run cannot be, looked at by itself and next to the earlier ones."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import environments
from environments import Environment
from environments.limits import Limits
from environments.score import Score
from tasks import run_checks
from tasks.run_checks import Earlier, same_play
from tasks.sandbox import outputs
from tasks.trial import History, Params, Proposal, Run, Trial, Verdict
from tests.support.toy import quadratic

STARTED = 1.7e9
FINE = Run(
    "trials/0001",
    seed=1,
    seconds=5.0,
    status="finished",
    steps=1000,
    started=STARTED,
    wall_seconds=6.0,
    program="p",
    checkpoint="c",
)
WRITTEN = STARTED + 4
"""When its checkpoint was written last."""


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A problem with a budget of 5 seconds, no budget of steps, and training that draws at random."""
    toy = environments.load(quadratic(tmp_path / "quadratic"))
    return toy.model_copy(update={"deterministic": False, "limits": Limits()})


def but(value: Any, **changes: Any) -> Any:
    return dataclasses.replace(value, **changes)


def with_limits(environment: Environment, **limits: Any) -> Environment:
    return environment.model_copy(update={"limits": Limits(**limits)})


def trial(number: int, run: Run, params: Params) -> Trial:
    return Trial(number, 1, number, Proposal(params), (run,), Score(0.5), Verdict("discard", "not better"))


def earlier(number: int, run: Run, params: Params) -> Earlier:
    """A run of an earlier trial."""
    return Earlier(f"trial {number}", Proposal(params), run)


def report(folder: Path, run: Run, returns: list[Any], metric: str = "loss", **more: Any) -> None:
    """Write a run's progress: a report every 100 steps."""
    out = folder / run.dir / "out"
    out.mkdir(parents=True, exist_ok=True)
    reports = [
        {"elapsed": float(index), "step": 100 * index, "metrics": {metric: value, **more}}
        for index, value in enumerate(returns)
    ]
    lines = ['{"ready": true}', *map(json.dumps, reports)]
    (out / "progress.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("run", "limits", "words"),
    [
        (but(FINE, seconds=0.0049), {}, r"trained for 0.0049 s, too short .*at least 0.005 s.*lower least_seconds"),
        (but(FINE, seconds=0.005), {}, None),
        (but(FINE, seconds=0.9), {"least_seconds": 1}, r"trained for 0.9 s, .*at least 1 s"),
        (but(FINE, seconds=0.0, steps=None), {"least_seconds": 0}, None),
        (but(FINE, seconds=0.0, steps=None), {}, "trained for 0 s, too short"),
    ],
)
def test_no_time_spent_is_no_training(
    run: Run, limits: dict[str, float], words: str | None, environment: Environment
) -> None:
    found = run_checks.of_one(with_limits(environment, **limits), run, WRITTEN)

    assert found is None if words is None else re.search(words, found or "")


@pytest.mark.parametrize(
    ("newest", "words"),
    [
        (STARTED - 1.9, None),
        (STARTED - 2.1, "no checkpoint of its own: the newest file in out/ is 2 s older than the run: save anew"),
        (STARTED - 3600, "is 3600 s older than the run"),
        (0.0, "left no checkpoint in out/"),
    ],
)
def test_a_checkpoint_from_before_the_start_is_not_this_runs(
    newest: float, words: str | None, environment: Environment
) -> None:
    found = run_checks.of_one(environment, FINE, newest)

    assert found is None if words is None else re.search(words, found or "")


@pytest.mark.parametrize(
    ("steps", "budget", "words"),
    [
        (100_000, 100_000, None),
        (110_000 + 65_536, 100_000, None),
        (110_001 + 65_536, 100_000, r"reported 175,537 steps of a budget of 100,000: stop at budget_steps"),
        (50_000_000, 0, None),
        (50_000_001, 0, r"reported 50,000,001 steps in 5 s, more than 1e\+07 a second: .*raise steps_per_second"),
        (10**400, 0, r"reported more than 1e15 steps in 5 s"),
        (-5, 10, None),
    ],
)
def test_more_steps_than_there_can_be_are_not_believed(
    steps: int, budget: int, words: str | None, environment: Environment
) -> None:
    by_steps = environment.model_copy(update={"budget_steps": budget})
    found = run_checks.of_one(by_steps, but(FINE, steps=steps), WRITTEN)

    assert found is None if words is None else re.search(words, found or "")


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
    others = (
        earlier(3, but(FINE, checkpoint="x"), {"x": 9}),
        earlier(4, but(FINE, dir="trials/0004", **changes), params),
    )
    found = run_checks.against_others(environment, FINE, Proposal({"x": 1}), others, tmp_path)

    assert found is None if words is None else re.search(words, found or "")


@pytest.mark.parametrize(("bytes_left", "small"), [(10, True), (1000, False)])
def test_equal_checkpoints_of_a_few_bytes_are_refused_with_a_remedy_whatever_progress_says(
    bytes_left: int, small: bool, environment: Environment, tmp_path: Path
) -> None:
    other = but(EARLIER, checkpoint=FINE.checkpoint, seed=2)
    report(tmp_path, FINE, [1.0, 2.0])
    report(tmp_path, other, [1.0, 3.0])
    (tmp_path / FINE.dir / "out/score.json").write_text("7" * bytes_left)

    found = run_checks.against_others(environment, FINE, Proposal({"x": 1}), (earlier(4, other, {"x": 1}),), tmp_path)
    assert found and "byte for byte" in found
    assert ("by chance" in found) is small


EARLIER = but(FINE, dir="trials/0004", seed=2, checkpoint="d")
RISING = [0.5, 0.25, 0.125, 0.1]


@pytest.mark.parametrize(
    ("here", "there", "metric", "more", "suspicious"),
    [
        (RISING, RISING, "loss", {}, True),
        (RISING, RISING, "return", {}, True),
        (RISING, [*RISING[:3], 0.2], "loss", {}, False),
        (RISING[:2], RISING, "loss", {}, False),
        ([0.5] * 4, [0.5] * 4, "loss", {}, False),
        (RISING, RISING, "learning_rate", {"loss": 0.0}, False),  # a schedule, and no success yet
        ([None, "x", [1], {}], [None, "x", [1], {}], "loss", {}, False),
        ([float("nan")] * 4, [float("nan")] * 4, "loss", {}, False),
        ([float("nan"), *RISING], [float("nan"), *RISING], "loss", {"kl": 10**400}, True),
    ],
)
def test_progress_that_coincides_under_another_seed_ignores_it(
    here: list[Any],
    there: list[Any],
    metric: str,
    more: dict[str, Any],
    suspicious: bool,
    environment: Environment,
    tmp_path: Path,
) -> None:
    report(tmp_path, FINE, here, metric, **more)
    report(tmp_path, EARLIER, there, metric, **more)
    others = (earlier(4, EARLIER, {"x": 1}),)

    found = run_checks.against_others(environment, FINE, Proposal({"x": 1}), others, tmp_path)
    if suspicious:
        words = "^ignores its seed: it reported the same progress as trial 4, number for number"
        assert re.search(words, found or "")
    else:
        assert found is None


def test_where_training_draws_nothing_at_random_runs_may_come_out_the_same(
    environment: Environment, tmp_path: Path
) -> None:
    report(tmp_path, FINE, RISING)
    report(tmp_path, EARLIER, RISING)
    others = (earlier(4, but(EARLIER, checkpoint=FINE.checkpoint), {"x": 1}),)
    drawing_nothing = environment.model_copy(update={"deterministic": True})

    assert run_checks.against_others(environment, FINE, Proposal({"x": 1}), others, tmp_path)
    assert run_checks.against_others(drawing_nothing, FINE, Proposal({"x": 1}), others, tmp_path) is None


@pytest.mark.parametrize("theirs", ["link", "pipe", "folder", "missing", "linked out", "not reports", "not text"])
def test_progress_that_is_no_plain_file_of_reports_says_nothing(
    theirs: str, environment: Environment, tmp_path: Path
) -> None:
    report(tmp_path, FINE, RISING)
    report(tmp_path, EARLIER, RISING)
    path = tmp_path / EARLIER.dir / "out" / "progress.jsonl"
    path.rename(tmp_path / "progress.jsonl")
    if theirs == "link":
        path.symlink_to(tmp_path / "progress.jsonl")
    elif theirs == "pipe":
        os.mkfifo(path)
    elif theirs == "folder":
        path.mkdir()
    elif theirs == "linked out":
        path.parent.rmdir()
        path.parent.symlink_to(tmp_path)
    elif theirs == "not reports":
        path.write_text('[1]\n"text"\n{"step": "1"}\n{"step": 1, "metrics": [1]}\n{\n' + "[" * 100_000 + "\n")
    elif theirs == "not text":
        path.write_bytes(b"\xff\xfe\n\x00\n" + b"9" * 5000)
    others = (earlier(4, EARLIER, {"x": 1}),)

    assert run_checks.against_others(environment, FINE, Proposal({"x": 1}), others, tmp_path) is None


def test_no_more_of_the_progress_is_read_than_a_bound(environment: Environment, tmp_path: Path) -> None:
    for run, last in ((FINE, 1), (EARLIER, 2)):
        report(tmp_path, run, RISING)
        with (tmp_path / run.dir / "out" / "progress.jsonl").open("ab") as file:
            file.write(b" " * run_checks.PROGRESS_BYTES + b"\n")
            file.write(b'{"step": 900, "metrics": {"loss": %d}}\n' % last)
            file.truncate(2**40)
    others = (earlier(4, EARLIER, {"x": 1}),)

    found = run_checks.against_others(environment, FINE, Proposal({"x": 1}), others, tmp_path)
    assert "ignores its seed" in (found or "")


def trained(folder: Path, name: str, content: str, **changes: Any) -> Run:
    """A run that left real files just now."""
    out = folder / "trials" / name / "out"
    out.mkdir(parents=True)
    (out / "model.json").write_text(content)
    started = time.time() - 1
    run = but(FINE, dir=f"trials/{name}", started=started, checkpoint=outputs.checkpoint(out), **changes)
    assert isinstance(run, Run)
    return run


def believed(
    environment: Environment,
    history: History,
    proposal: Proposal,
    run: Run,
    folder: Path,
    siblings: tuple[Run, ...] = (),
) -> Run:
    """The run as a campaign takes it, after both checks."""
    alone = run_checks.plausible(environment, run, folder)
    return run_checks.plausible_beside(environment, history, proposal, alone, folder, siblings)


def test_a_run_that_cannot_be_becomes_a_crash_and_keeps_the_rest(environment: Environment, tmp_path: Path) -> None:
    before = trial(0, trained(tmp_path, "0000", "a", seed=7), {"x": 1})
    run = trained(tmp_path, "0001", "a")

    found = believed(environment, (before,), Proposal({"x": 1}), run, tmp_path)
    assert found.status == "crash"
    assert (found.error or "").startswith("ignores its seed: its checkpoint is that of trial 0, byte for byte")
    assert but(found, status="finished", error=None) == run


def test_runs_of_the_same_proposal_are_compared_before_any_trial_holds_them(
    environment: Environment, tmp_path: Path
) -> None:
    first, second = trained(tmp_path, "0001", "a"), trained(tmp_path, "0001-run-2", "a", seed=2)
    third = trained(tmp_path, "0001-run-3", "b", seed=3)

    found = believed(environment, (), Proposal({"x": 1}), second, tmp_path, (first,))
    words = "ignores its seed: its checkpoint is that of another run of it, byte for byte"
    assert (found.error or "").startswith(words)
    assert believed(environment, (), Proposal({"x": 1}), third, tmp_path, (first, second)) is third


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
