"""Lanes: the same frames and returns on any number of cores, and nothing is left behind."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from environments.judges import Misbehaved
from environments.judges._playing import EnvSource, Lanes, opened
from tests.support.processes import own_children

SECONDS = 60.0


def nobody() -> None:
    """Nobody ends the judgement."""


CARTPOLE = EnvSource("CartPole-v1", None, {})


def answers(lanes: int, seed: int = 0) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    while True:
        yield rng.integers(0, 2, lanes).astype("<i8").tobytes()


def played(sources: list[EnvSource], cores: int) -> tuple[list[bytes], list[float]]:
    """Every frame, and the returns, of the first and then of the last lanes."""
    frames, half = [], len(sources) // 2
    with opened(sources, cores, None, SECONDS, nobody) as lanes:
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
    assert alone == played(sources, 2) == played(sources, 3)
    assert len(set(alone[1])) > 2


ODD = """
import os, signal, sys, time
import gymnasium

print("imported")

class Odd(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, does):
        self.does, self.steps = does, 0
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def reset(self, seed=None, options=None):
        print("an episode begins")
        return self.observation_space.low, {}

    def step(self, action):
        self.steps += 1
        if self.steps > 2:
            exec(self.does)
        return self.observation_space.low, self.observation_space.high[:1], self.steps > 5, False, {}

gymnasium.register("Odd-v0", Odd, max_episode_steps=50)
"""


@contextmanager
def odd(folder: Path, does: str, check: Callable[[], None] = nobody) -> Iterator[Lanes]:
    """A lane of an environment that does this at its third step."""
    (folder / "odd_lanes.py").write_text(ODD)
    with opened([EnvSource("odd_lanes:Odd-v0", None, {"does": does})], 1, folder, SECONDS, check) as lanes:
        lanes.reset({0: 1})
        yield lanes
    assert not own_children("environments.judges._process")


def play(lanes: Lanes) -> None:
    replies = answers(1)
    while lanes.active.any():
        lanes.step(next(replies))


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("sys.exit(0)", "the environment failed in lane 0 at step 3: SystemExit: 0"),
        ("os._exit(7)", "the environment's process ended with status 7; it printed last: imported an episode begins"),
        ("os.fork() and os._exit(7); time.sleep(60)", "ended with status 7"),
        ("time.sleep(60)", "did not come back within 2 s"),
    ],
)
def test_what_a_foreign_environment_does_is_a_reason_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], does: str, reason: str
) -> None:
    with odd(tmp_path, does) as lanes:
        lanes._processes[0]._seconds = 2
        with pytest.raises(Misbehaved, match=re.escape(reason)):
            play(lanes)
    assert capfd.readouterr() == ("", "")


def test_what_it_prints_is_nobody_s_and_an_array_of_one_number_is_a_reward(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with odd(tmp_path, 'print("x" * 10**6)') as lanes:
        play(lanes)
        assert lanes.returns == [6 * 9.0]
    assert capfd.readouterr() == ("", "") and "odd_lanes" not in sys.modules


def test_workers_end_with_the_process_that_started_them() -> None:
    program = (
        "import os, signal\n"
        "from environments.judges import _playing\n"
        "source = _playing.EnvSource('CartPole-v1', None, {})\n"
        "with _playing.opened([source] * 2, 2, None, 60, lambda: None) as lanes:\n"
        "    lanes.reset({0: 1, 1: 2})\n"
        "    print(lanes._processes[0]._process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    worker = psutil.Process(int(done.stdout)) if psutil.pid_exists(int(done.stdout)) else None
    assert worker is None or worker.wait(10) is None


def test_a_judgement_ends_though_the_environment_never_comes_back(tmp_path: Path) -> None:
    started: list[int] = []

    def end() -> None:
        if started:
            raise KeyboardInterrupt

    with odd(tmp_path, "time.sleep(600)", end) as lanes:
        started.append(1)
        with pytest.raises(KeyboardInterrupt):
            play(lanes)
