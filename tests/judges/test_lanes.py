"""Lanes: the same frames and returns on any number of cores, the same words for a fault, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from environments.judges import Misbehaved, _lanes
from environments.judges._lanes import Lanes, opened
from environments.judges._making import EnvSource
from tests.support.processes import own_children

CARTPOLE = EnvSource("CartPole-v1", None, {}, "[control]")
FAILING = """
import gymnasium

class Failing(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, after):
        self.after, self.steps = after, 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        if self.steps > self.after:
            raise RuntimeError("it is broken")
        return self.observation_space.low, 1.0, False, False, {}

gymnasium.register("Failing-v0", Failing, max_episode_steps=50)
"""


@pytest.fixture(autouse=True)
def workers() -> Iterator[None]:
    yield
    _lanes._end_idle()


def answers(lanes: int, seed: int = 0) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    while True:
        yield rng.integers(0, 2, lanes).astype("<i8").tobytes()


def played(sources: list[EnvSource], cores: int, beside: bool = False) -> tuple[list[bytes], list[float]]:
    """Every frame, and the returns, of the first and then of the last lanes."""
    frames, half = [], len(sources) // 2
    with opened(sources, cores, beside) as lanes:
        replies = answers(len(sources))
        for numbers in (range(half), range(half, len(sources))):
            lanes.reset({number: 100 + number for number in numbers})
            while lanes.active.any():
                frames.append(lanes.frame())
                lanes.step(next(replies))
        return frames, lanes.returns


def test_frames_and_returns_are_the_same_on_any_number_of_cores() -> None:
    sources = [CARTPOLE] * 7
    alone = played(sources, 1)
    assert alone == played(sources, 2) == played(sources, 3) == played(sources, 2)
    assert len(set(alone[1])) > 2
    assert len(_lanes._idle) == 2, "workers are kept for the next judgement"


def test_beside_other_judgements_no_lane_is_stepped_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [CARTPOLE] * 5
    alone = played(sources, 1)

    def step(lanes: Lanes, answer: bytes) -> None:
        raise AssertionError("a lane is stepped here")

    monkeypatch.setattr(Lanes, "step", step)
    assert alone == played(sources, 1, beside=True) == played(sources, 2, beside=True)


def test_more_cores_than_lanes_are_of_no_use() -> None:
    assert played([CARTPOLE], 8) == played([CARTPOLE], 1)
    assert not _lanes._idle


@pytest.mark.parametrize("after", [(9, 3, 9, 3), (3, 9, 9, 2)])
def test_a_fault_is_said_in_the_same_words(
    after: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_lanes.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    sources = [EnvSource("failing_lanes:Failing-v0", None, {"after": steps}, "[control]") for steps in after]
    said = []
    for cores, beside in ((1, False), (2, False), (1, True)):
        with pytest.raises(Misbehaved) as fault:
            played(sources, cores, beside)
        said.append(str(fault.value))
    assert said[0] == said[1] == said[2]
    assert "it is broken" in said[0]


def test_an_invalid_action_is_found_before_any_lane_is_stepped() -> None:
    for cores, beside in ((1, False), (2, False), (1, True)):
        with opened([CARTPOLE] * 4, cores, beside) as lanes:
            lanes.reset(dict.fromkeys(range(4), 7))
            before = lanes.frame()
            with pytest.raises(Misbehaved, match=r"5, which is outside 0\.\.1, for the action in lane 3 at step 1"):
                lanes.step(np.array([0, 1, 0, 5], "<i8").tobytes())
            assert lanes.frame() == before


def test_a_worker_that_is_killed_costs_the_score_and_is_replaced() -> None:
    with opened([CARTPOLE] * 2, 2) as lanes:
        lanes.reset({0: 1, 1: 2})
        own_children("environments.judges._lanes")[0].kill()
        with pytest.raises(Misbehaved, match="ended with status -9"):
            lanes.returns  # noqa: B018 (asks the worker)
    assert played([CARTPOLE] * 2, 2) == played([CARTPOLE] * 2, 1)


def test_a_worker_that_ended_while_it_was_idle_costs_no_score() -> None:
    expected = played([CARTPOLE] * 2, 1)
    assert played([CARTPOLE] * 2, 2) == expected
    (idle,) = own_children("environments.judges._lanes")
    idle.suspend()  # so that it is still there when it is asked, and gone before it answers
    with opened([CARTPOLE] * 2, 2) as lanes:
        idle.kill()
        lanes.reset({0: 1, 1: 2})
    assert played([CARTPOLE] * 2, 2) == expected


def test_a_worker_that_has_never_answered_is_not_started_twice() -> None:
    worker = _lanes.Worker()
    (process,) = own_children("environments.judges._lanes")
    process.kill()
    process.wait()
    with pytest.raises(Misbehaved, match="ended with status"):
        worker.make([CARTPOLE], range(1), {0}, [])
    worker.was_idle = True
    worker.make([CARTPOLE], range(1), {0}, sys.path)
    worker.settle()
    worker.end()


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from environments.judges import _lanes, _making\n"
        "source = _making.EnvSource('CartPole-v1', None, {}, '')\n"
        "with _lanes.opened([source] * 2, 2) as lanes:\n"
        "    lanes.reset({0: 1, 1: 2})\n"
        "    print(lanes._workers[0]._process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    worker = psutil.Process(int(done.stdout)) if psutil.pid_exists(int(done.stdout)) else None
    assert worker is None or worker.wait(10) is None
