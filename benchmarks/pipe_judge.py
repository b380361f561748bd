"""How fast the judge plays through its pipes, compared with the same policy evaluated in this process.

    python -m benchmarks.pipe_judge [--rounds 5] [--lanes 100] [--cores 2] [--busy 0] [--json]
                                    [--environments cartpole lunar_lander] [--levels bwrap landlock none]

Both play the same episodes of the same trained policy, one to a lane, all lanes side by side. The columns named after
levels of isolation are the engine's own `tasks.evaluate.judge_run`: the control judge steps the environments here, and
the trial's program, confined, answers each frame with the actions of all lanes. `in process` is the loop that one
would write without a sandbox: the same environments, seeds and batches, the policy a call away, torch on one thread.
`2 cores` is the first of these levels with a judge that steps the lanes on so many cores.

The policy answers its mode, so all of them must come to the same returns, to the last bit; if not, this stops.

The policy comes from a short real training of `tasks/trainers/ppo.py`, whose `act` is the program that is judged. A
round plays every way once, in an order of its own, and a ratio is taken within a round.

steps_per_frame    lanes that still play, at the mean
steps_per_second   env steps from ready to the last one, the reset of all lanes with them
ratio              of that to the same in process
step_us/answers    its part of one env step: frames sent and answers awaited (in process: the policy's calls)
step_us/rest       all else of it: above all the environments themselves
ready_ms           until the first frame: environments made, program started and its libraries loaded, policy read
waited_s           for how long the judge waited for the program in all, its start included
after_ms           from the last step to the score: silence heard, the program and its processes ended
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from pydantic import PrivateAttr
from rich.console import Console
from rich.table import Column, Table

import environments
from environments import Environment, plugins
from environments.judges import Candidate, Exam
from environments.judges.control import Control
from environments.score import Score, Wait
from environments.space import Value
from tasks.evaluate import judge_run
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation, findings
from tasks.store.workspace import TRAINERS, TrialDir, baseline_files
from tasks.train import run_program
from tasks.trial import Proposal, Run

sys.path.append(str(plugins.folder(TRAINERS)))  # as in a workspace, where ppo finds _program.py beside it

if TYPE_CHECKING:
    import gymnasium

    from tasks.trainers import ppo

TRAININGS: dict[str, dict[str, Value]] = {
    "cartpole": {"learning_rate": 3e-3}, "lunar_lander": {"learning_rate": 1e-3}, "bipedal_walker": {},
}  # fmt: skip
"""What is played, and what makes a short training learn enough for episodes of an ordinary length."""
STEPS = 20_000
"""Of the training: some seconds."""
SEED = 20
"""Of the episodes."""
LOCAL = "in process"
FREE = Wait(75.0, 0.0, 0)
"""A baseline's need as in a campaign, of which nothing here uses up what follows from it."""
BUSY = "while True: sum(range(10_000))"
Figures = dict[str, Any]


@dataclass(frozen=True)
class Playing:
    """One evaluation; times in seconds."""

    returns: tuple[float, ...]
    steps: int
    """Of all lanes together."""
    frames: int
    ready: float
    playing: float
    answers: float
    """That part of `playing` which went to the policy's answers."""
    after: float
    waited: float | None = None
    """None in this process."""


class Witness:
    """A candidate under judgement, and when the judge spoke with it."""

    def __init__(self, candidate: Candidate, lanes: int) -> None:
        self.result = candidate.result
        self.ready = self.played = self.answers = 0.0
        self.steps = self.frames = 0
        self._candidate = candidate
        self._lanes = lanes

    def send(self, data: bytes, seconds: float) -> None:
        began = time.perf_counter()
        self._candidate.send(data, seconds)
        self.answers += time.perf_counter() - began
        self.frames += 1
        self.steps += data.count(1, 0, self._lanes)  # a frame begins with a byte per lane: whether it is stepped

    def receive(self, size: int, seconds: float) -> bytes:
        began = time.perf_counter()
        if size == 1:  # no answer is so short: the judge has played all, and makes sure that nothing follows
            self.played = self.played or began
            return self._candidate.receive(size, seconds)
        answer = self._candidate.receive(size, seconds)
        self.answers += time.perf_counter() - began
        return answer

    def receive_line(self, limit: int, seconds: float) -> bytes:
        line = self._candidate.receive_line(limit, seconds)
        self.answers, self.steps, self.frames = 0.0, 0, 0  # what was sent before was no frame
        self.ready = time.perf_counter()
        return line

    def wait(self, seconds: float) -> int:
        return self._candidate.wait(seconds)


class Watched(Control):
    """The control judge, with a witness of its latest evaluation."""

    _witness: Witness = PrivateAttr()
    _cores: int = PrivateAttr(default=1)

    @property
    def witness(self) -> Witness:
        return self._witness

    def score(self, candidate: Candidate, exam: Exam) -> Score:
        self._witness = Witness(candidate, self.episodes)
        return super().score(self._witness, replace(exam, cores=self._cores))

    def use(self, cores: int) -> None:
        self._cores = cores


@dataclass(frozen=True)
class Trained:
    """A trained program, and the judge that plays it."""

    environment: Environment
    judge: Watched
    place: TrialDir
    run: Run

    def piped(self, level: Level, cores: int = 1) -> Playing:
        """As the engine evaluates it."""
        self.judge.use(cores)
        began = time.perf_counter()
        isolation = Isolation(level)
        score = judge_run("benchmark", self.environment, isolation, self.place, self.run, SEED, need=FREE)
        ended, witness = time.perf_counter(), self.judge.witness
        if score.value is None:
            raise RuntimeError(f"{self.environment.name} at {level} has no score: {score.error}")
        playing = witness.played - witness.ready
        return Playing(
            score.units, witness.steps, witness.frames, witness.ready - began, playing, witness.answers,
            ended - witness.played, score.waited and score.waited.ready + score.waited.answering,
        )  # fmt: skip

    def here(self) -> Playing:
        """The same without the engine: a plain loop."""
        import gymnasium

        from tasks.trainers import ppo

        began = time.perf_counter()
        agent = ppo.load(self.place.out / "policy.pt")
        lanes = [gymnasium.make(self.judge.id, disable_env_checker=True) for _ in range(self.judge.episodes)]
        episodes, _ = np.random.SeedSequence(SEED).spawn(2)  # as the judge draws them
        seeds = [int(word) >> 1 for word in episodes.generate_state(len(lanes))]
        ready = time.perf_counter()
        returns, steps, frames, answers = loop(agent, lanes, seeds)
        played = time.perf_counter()
        for lane in lanes:
            lane.close()
        after = time.perf_counter() - played
        return Playing(tuple(returns), steps, frames, ready - began, played - ready, answers, after)


def loop(
    agent: ppo.Agent, lanes: Sequence[gymnasium.Env[Any, Any]], seeds: Sequence[int]
) -> tuple[list[float], int, int, float]:
    """One episode in each lane: the returns, the steps of all lanes, the calls of the policy and their seconds."""
    import torch

    from tasks.trainers import ppo

    seen = np.stack([lane.reset(seed=seed)[0] for lane, seed in zip(lanes, seeds, strict=True)])
    mode = torch.ones(len(lanes), 1, dtype=torch.bool)
    active, returns = list(range(len(lanes))), [0.0] * len(lanes)
    steps, calls, seconds = 0, 0, 0.0
    while active:
        began = time.perf_counter()
        with torch.no_grad():
            actions = list(agent.playable(agent.choose(agent.read(torch.from_numpy(ppo.flat(seen))), mode)))
        seconds += time.perf_counter() - began
        steps, calls, going_on = steps + len(active), calls + 1, []
        for lane in active:
            seen[lane], reward, terminated, truncated, _ = lanes[lane].step(actions[lane])
            returns[lane] += float(reward)
            if not (terminated or truncated):
                going_on.append(lane)
        active = going_on
    return returns, steps, calls, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast the judge plays through its pipes.")
    parser.add_argument("--rounds", type=int, default=5, help="evaluations each way (5)")
    parser.add_argument("--lanes", type=int, default=100, help="episodes side by side (100)")
    parser.add_argument("--busy", type=int, default=0, help="processes that keep the cores busy meanwhile (0)")
    parser.add_argument("--cores", type=int, default=2, help="of a judge that uses several; 1: leave it out (2)")
    parser.add_argument("--environments", nargs="+", choices=TRAININGS, default=["cartpole", "lunar_lander"])
    parser.add_argument("--levels", nargs="+", choices=get_args(Level), default=get_args(Level))
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds must be at least 2, to have a spread, got {options.rounds}")
    if not 1 <= options.lanes <= 1000:
        parser.error(f"--lanes must be from 1 to 1000, as the judge has it, got {options.lanes}")
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.busy)]
    try:
        figures = measure(options)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(json.dumps(figures, indent=2)) if options.json else show(figures)


def measure(options: argparse.Namespace) -> Figures:
    """The figures of each environment, by way of playing: median, smallest and largest."""
    import torch

    torch.set_num_threads(1)
    levels = [finding.level for finding in findings() if finding.works and finding.level in options.levels]
    rounds, lanes, cores = options.rounds, options.lanes, options.cores
    shared = [f"{cores} cores"] if cores > 1 else []
    rows: Figures = {}
    for name in options.environments:
        with tempfile.TemporaryDirectory(prefix="nightshift-benchmark-") as folder:
            games = play(train(name, Path(folder).resolve(), levels[0], lanes), levels, rounds, cores)
        rows |= {f"{name}/{kind}": row for kind, row in summary(games).items()}
    about = f"{lanes} lanes, {rounds} evaluations each, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}"
    return {"about": about, "columns": [LOCAL, *levels, *shared], "rows": rows}


def train(name: str, folder: Path, level: Level, lanes: int) -> Trained:
    """A short training as the engine does it."""
    bundled = environments.load(environments.find(name), {"budget_steps": STEPS, "budget_seconds": 60.0})
    settings = bundled.judge.model_dump() | {"episodes": lanes, "other_episodes": 0, "deterministic": True}
    environment = bundled.model_copy(update={"judge": (judge := Watched(**settings))})
    program, place = folder / "program", TrialDir(folder / "trial")
    program.mkdir()
    for source, called in baseline_files(environment):
        shutil.copy(source, program / called)
    proposal = Proposal(environment.complete(TRAININGS[name]))
    run = run_program("benchmark", environment, Isolation(level), program, place, proposal, seed=1)
    if run.status != "finished":
        raise RuntimeError(f"the training of {name} ended as {run.status}: {run.error}")
    return Trained(environment, judge, place, run)


def play(trained: Trained, levels: Sequence[Level], rounds: int, cores: int) -> list[dict[str, Playing]]:
    """Every way in every round; the first round, which loads what is needed, counts nowhere.

    Raises:
        RuntimeError: two ways came to different returns, so that they did not do the same work.
    """
    ways: dict[str, Callable[[], Playing]] = {LOCAL: trained.here}
    ways |= {level: partial(trained.piped, level) for level in levels}
    ways |= {f"{cores} cores": partial(trained.piped, levels[0], cores)} if cores > 1 else {}
    order, shuffle, games = list(ways), random.Random(0).shuffle, []
    for _ in range(rounds + 1):
        games.append({way: ways[way]() for way in order})
        shuffle(order)
    for way, game in games[0].items():
        if (game.returns, game.steps) != (games[0][LOCAL].returns, games[0][LOCAL].steps):
            raise RuntimeError(f"{trained.environment.name}: {way} played other episodes than {LOCAL}")
    return [{way: game[way] for way in ways} for game in games[1:]]


def summary(games: Sequence[dict[str, Playing]]) -> Figures:
    """Rows of figures, each by way of playing."""
    ways = list(games[0])
    one = games[0][LOCAL]
    rows: Figures = {"return": {LOCAL: spread([statistics.fmean(one.returns)])}}
    rows["steps_per_frame"] = {LOCAL: spread([one.steps / one.frames])}
    of: dict[str, Callable[[Playing], float]] = {
        "steps_per_second": lambda game: game.steps / game.playing,
        "step_us/answers": lambda game: game.answers / game.steps * 1e6,
        "step_us/rest": lambda game: (game.playing - game.answers) / game.steps * 1e6,
        "ready_ms": lambda game: game.ready * 1e3,
        "after_ms": lambda game: game.after * 1e3,
    }
    for kind, figure in of.items():
        rows[kind] = {way: spread([figure(game[way]) for game in games]) for way in ways}
    waits = {way: [game[way].waited or 0.0 for game in games] for way in ways if way != LOCAL}
    rows["waited_s"] = {way: spread(waited) for way, waited in waits.items()}
    rows["ratio"] = {
        way: spread([game[LOCAL].playing / game[way].playing for game in games]) for way in ways if way != LOCAL
    }
    return rows


def spread(values: Sequence[float]) -> dict[str, float]:
    figures = {"median": statistics.median(values), "low": min(values), "high": max(values)}
    return {name: round(value, 3) for name, value in figures.items()}


def show(figures: Figures) -> None:
    first = Column("median (smallest .. largest)", no_wrap=True)
    table = Table(first, *figures["columns"], title=figures["about"])
    for kind, row in figures["rows"].items():
        table.add_row(kind, *(shown(row[way]) if way in row else "" for way in figures["columns"]))
    Console(highlight=False).print(table)


def shown(figure: dict[str, float]) -> str:
    large, small = figure["high"] >= 10_000, figure["high"] < 10
    values = (figure[name] / (1000 if large else 1) for name in ("median", "low", "high"))
    middle, low, high = (f"{value:.{2 * small}f}{'k' * large}" for value in values)
    return f"{middle} ({low} .. {high})" if low != high else middle


if __name__ == "__main__":
    main()
