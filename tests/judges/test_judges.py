"""Judges: a real program, real pipes, and a score only for answers that deserve one."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium import spaces

from environments import plugins
from environments.judges import Exam, Judge, Misbehaved
from environments.judges._playing import EnvSource, Lanes
from environments.judges._process import ForeignProcess
from environments.judges.command import RESULT_BYTES, Command
from environments.judges.control import Control
from environments.score import Score
from tests.support import act_programs as policies
from tests.support.act_programs import PipeCandidate
from tests.support.processes import own_children, wait_for

JUDGES = plugins.names("environments.judges")
ENVIRONMENTS = "tests.support.judged_environments"
"""The module of the environments of these tests: only the process that steps them imports it."""
SETTINGS: dict[str, dict[str, Any]] = {
    "control": {"id": f"{ENVIRONMENTS}:Drift-v0", "start_seconds": 20},
    "command": {"eval_cmd": "evaluate {result}", "total_seconds": 20},
    "reported": {"total_seconds": 20},
    "text": {"questions": 2, "samples": 2, "max_tokens": 8, "total_seconds": 20},
}
"""Settings that work, for each judge; a new one adds its own."""


def judged(body: str, folder: Path, seed: int = 7, **fields: Any) -> Score:
    """The score of one act program by a control judge with 8 lanes."""
    judge = Control(
        **{"id": f"{ENVIRONMENTS}:Drift-v0", "episodes": 8, "other_episodes": 0, "start_seconds": 30, **fields}
    )
    with PipeCandidate.of(body, folder) as candidate:
        return judge.score(candidate, Exam(seed))


# Every judge


@pytest.mark.parametrize("name", JUDGES)
def test_a_candidate_that_just_ends_has_no_score(name: str, tmp_path: Path) -> None:
    judge = plugins.load("environments.judges", name, Judge)(**SETTINGS[name])
    command = [sys.executable, "-I", "-c", "print('score: 500')"]
    with PipeCandidate(command, tmp_path) as candidate, pytest.raises(Misbehaved):
        judge.score(candidate, Exam(7))


# Control: before anything starts

SIZES = {str(many): {"kwargs": {"observation_space": spaces.Discrete(many)}} for many in (2, 3)}
ABC: dict[str, Any] = {"a": {}, "b": {}, "c": {}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": "Cartpole-v1"}, "Cartpole-v1 cannot be made .*Did you mean: `CartPole"),
        ({"id": f"{ENVIRONMENTS}:Drifting-v0"}, "Drifting-v0 has no time limit.*set max_episode_steps"),
        (
            {"kwargs": {"action_space": spaces.Dict(b=spaces.Sequence(spaces.Discrete(2)))}},
            "action leaf 'b' is of type Sequence",
        ),
        ({"sources": SIZES}, "kwargs .* make different spaces"),
        ({"sources": {"a": {}, "b": {"kwargs": {"lenght": 3}}}}, r"'lenght': 3"),
        ({"sources": ABC}, "episodes must be a multiple of 3, the number of sources, got 100"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_refused_with_the_remedy(fields: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, Misbehaved), match=f"(?m){words}"):
        Control(**{"id": f"{ENVIRONMENTS}:Drift-v0", **fields}).check(Path())


# Control: policies of every kind


def test_nested_spaces_cross_in_sorted_order_and_every_leaf_keeps_its_values(tmp_path: Path) -> None:
    assert judged(policies.SORTER, tmp_path, id=f"{ENVIRONMENTS}:Nest-v0").units == (6.0,) * 8
    hello = json.loads((tmp_path / "hello.json").read_text())
    assert [leaf["path"] for leaf in hello["observation"]] == ["a", "b/0", "b/1/a", "b/1/z"]
    assert [(leaf["path"], leaf["dtype"], leaf["shape"]) for leaf in hello["action"]] == [
        ("0", "<i8", [2]), ("1", "<f4", [2]), ("2/x", "|i1", [3]), ("2/y", "<i8", []),
    ]  # fmt: skip


def test_every_lane_plays_one_episode_and_is_dark_afterwards(tmp_path: Path) -> None:
    judged(policies.RECORDER, tmp_path, episodes=20)
    frame = np.dtype([("active", "?", 20), ("start", "?", 20), ("seen", "<f4", (20, 2))])
    frames = np.fromfile(tmp_path / "frames.bin", frame)
    lengths = frames["active"].sum(axis=0)
    assert len(set(lengths)) > 2
    assert len(frames) == lengths.max()
    assert frames["start"][0].all()
    assert not frames["start"][1:].any()
    for number, shown in enumerate(frames, 1):
        assert (shown["active"] == (number <= lengths)).all()
        assert (shown["seen"][shown["active"], 0] == number).all()
        assert (shown["seen"][shown["active"], 1] == lengths[shown["active"]]).all()
        assert (shown["seen"][~shown["active"]] == 0).all()


def test_the_same_seed_gives_the_same_score_and_another_one_other_episodes(tmp_path: Path) -> None:
    first, again, other = (
        judged(policies.SAMPLER, tmp_path, seed=seed, deterministic=False).units for seed in (3, 3, 4)
    )
    assert first == again
    assert set(first).isdisjoint(other)


def test_what_goes_wrong_in_the_other_mode_costs_no_score(tmp_path: Path) -> None:
    body = """
ready()
for active, start, columns in frames():
    column, *_ = actions = blank()
    column[:, 0] = 1
    if not active[:8].any():
        column[active] = np.nan
    answer(*actions)
"""
    score = judged(body, tmp_path, other_episodes=3)
    assert len(score.units) == 8 and list(score.also) == ["return/deterministic"]


TWO = {"short": {"kwargs": {"length": 4}}, "long": {"kwargs": {"length": 9}, "weight": 3}}
"""A policy that earns 1 a step scores 4 and 9 there."""
ONES = """
ready()
for active, start, columns in frames():
    column, *_ = blank()
    column[:, 0] = hello["deterministic"]
    answer(column)
"""
"""Earns 1 a step, and nothing where it is to sample."""


@pytest.mark.parametrize("deterministic", [True, False])
def test_only_the_stated_mode_counts_and_over_sources_the_weighted_mean_of_their_means(
    deterministic: bool, tmp_path: Path
) -> None:
    score = judged(ONES, tmp_path, sources=TWO, other_episodes=4, deterministic=deterministic)
    mean = (4 + 3 * 9) / 4
    assert score.units == ((4.0,) * 4 + (9.0,) * 4 if deterministic else (0.0,) * 8)
    assert (score.value, score.n, score.se) == (mean if deterministic else 0.0, 8, 0.0)
    means = {"source/short": 4.0, "source/long": 9.0} if deterministic else {"source/short": 0.0, "source/long": 0.0}
    assert score.also == means | {"return/deterministic": mean, "return/sampled": 0.0}


def test_an_action_that_is_none_has_a_reason_with_its_place_and_no_score(tmp_path: Path) -> None:
    """Further answers that are none: tests/red_team/test_judge.py."""
    body = """
ready()
for active, start, columns in frames():
    column, *_ = blank()
    column[:] = 5
    column[4] = 8
    answer(column)
"""
    choice = {"action_space": spaces.Dict(gas=spaces.Tuple([spaces.Discrete(3, start=5)]))}
    with pytest.raises(Misbehaved, match="for action 'gas/0' in lane 4 at step 1"):
        judged(body, tmp_path, kwargs=choice)
    assert not own_children("environments.judges._process")


# Command


def run_command(program: str, folder: Path) -> Score:
    """The score of an evaluation command, which finds the result's path in `result`."""
    (folder / "evaluate.py").write_text(f"import json, os, sys\nresult = sys.argv[1]\n{program}")
    judge = Command(eval_cmd=f"{sys.executable} -I evaluate.py {{result}}", total_seconds=20)
    judge.check(Path())
    command = shlex.split(judge.command().replace("{result}", str(folder / "result.json")))
    with PipeCandidate(command, folder) as candidate:
        return judge.score(candidate, Exam(7))


@pytest.mark.parametrize(
    ("result", "value", "also"),
    [
        ({"score": -3, "note": "further keys are welcome"}, -3, {}),
        ({"units": [1, 0, 1, 0.5], "also": {"tokens": 3.5}}, 0.625, {"tokens": 3.5}),
        ({"sources": {"a": [1, 0, 0, 1], "b": [3, 3]}}, 1.75, {"source/a": 0.5, "source/b": 3.0}),
        ({"score": 1, "also": {"a": "3", "b": math.inf, "": 3}}, 1, {}),
    ],
)
def test_the_result_of_a_command_is_its_score(
    result: dict[str, Any], value: float, also: dict[str, float], tmp_path: Path
) -> None:
    text = json.dumps(result)
    score = run_command(f"open(result, 'w').write({text!r}); print('score: 500')", tmp_path)
    assert (score.value, score.also, score.error) == (value, also, None)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("sys.exit(3)", "^the evaluation command exited with status 3$"),
        ("print('{\"score\": 1}')", r"result.json cannot be read \(No such file.*must leave {\"score\": number}"),
        ("os.mkfifo(result)", "result.json cannot be read .Not a plain file"),
        ("open(result, 'w').write('[' * 100_000)", "result.json: Invalid JSON"),
        ("json.dump({'units': [1, float('nan')]}, open(result, 'w'))", r"units.1: .*finite number"),
        (f"open(result, 'w').write(' ' * {RESULT_BYTES} + '1')", "is larger than 8388608 bytes"),
    ],
)
def test_a_broken_result_has_a_reason_and_no_score(program: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(Misbehaved, match=words):
        run_command(program, tmp_path)


# Lanes: nothing of a foreign environment is left behind.


@contextmanager
def doing(does: str, check: Callable[[], None] = lambda: None) -> Iterator[ForeignProcess]:
    """A lane of an environment that does this at its third step."""
    source = EnvSource(f"{ENVIRONMENTS}:Drift-v0", None, {"length": 6, "does": does})
    with ForeignProcess(Path(), 60.0, check) as lanes:
        lanes.call(Lanes, [source])
        lanes.call(Lanes.reset, {0: 1})
        yield lanes
    assert not own_children("environments.judges._process")


def play(lanes: ForeignProcess) -> None:
    while lanes.call(Lanes.step, bytes(8)):
        pass


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("self.reward = np.nan", "the environment returned reward nan in lane 0 at step 3"),
        ("sys.exit(0)", "the environment failed in lane 0 at step 3: SystemExit: 0"),
        ("os._exit(7)", "the environment's process ended with status 7; it printed last: imported an episode begins"),
        ("os.fork() and os._exit(7); time.sleep(60)", "ended with status 7"),
        ("time.sleep(60)", "did not come back within 2 s"),
    ],
)
def test_what_a_foreign_environment_does_is_a_reason_and_nothing_else(
    capfd: pytest.CaptureFixture[str], does: str, reason: str
) -> None:
    with doing(does) as lanes:
        lanes._seconds = 2 if "within" in reason else 60
        with pytest.raises(Misbehaved, match=re.escape(reason)):
            play(lanes)
    assert capfd.readouterr() == ("", "")


def test_what_it_prints_is_nobody_s_and_an_array_of_one_number_is_a_reward(capfd: pytest.CaptureFixture[str]) -> None:
    with doing('print("x" * 10**6); self.reward = np.array([9.0])') as lanes:
        play(lanes)
        assert lanes.call(Lanes.returns) == [9.0]
    assert capfd.readouterr() == ("", "") and ENVIRONMENTS not in sys.modules


def test_workers_end_with_the_process_that_started_them() -> None:
    program = (
        "import os, signal\n"
        "from environments.judges._process import ForeignProcess\n"
        "with ForeignProcess(None, 60) as process:\n"
        "    print(process.call(os.getpid), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    wait_for(lambda: not psutil.pid_exists(int(done.stdout)), 10)


def test_a_judgement_ends_though_the_environment_never_comes_back() -> None:
    started: list[int] = []

    def end() -> None:
        if started:
            raise KeyboardInterrupt

    with doing("signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)", end) as lanes:
        started.append(1)
        with pytest.raises(KeyboardInterrupt):
            play(lanes)
