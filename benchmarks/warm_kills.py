"""Does anything go wrong when programs that start warm are killed? At random moments, with all that starts them.

    python -m benchmarks.warm_kills [--kills 1000] [--seed 0] [--modules numpy gymnasium torch] [--json]

An engine, which is a fork of this process, runs one program after another. Each is forked from a template
(tasks/sandbox/warm), begins a worker in a session of its own that is deaf to SIGTERM, and leaves a model. In each life
of the engine another level of isolation is used. At a random moment of a run, one of these is killed (SIGKILL, SIGTERM
or SIGHUP), whichever there is then:

    program, worker    and `starting`: the program before it has begun, `sandbox`: bubblewrap, or what waits in it
    supervisor         and `idle`: a supervisor that has no order yet
    template           some of the times; the next program has another one made
    engine             some of the times (SIGKILL); then all of these have to end by themselves

    lost           runs that nobody struck and that did not end well; runs that ended well without a whole model; runs
                   of whose end the engine was not told
    doubled        runs that were begun while a process of them was alive, or that came to their end twice
    left_running   processes of a run that live on for longer than PATIENCE when it is over, or when the engine is dead
    cold_starts    programs that started by themselves, because what was forked for them was killed
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.trial_processes import forked_relatives, of_campaign
from environments.limits import Limits
from tasks import imports_ahead
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.isolation import findings
from tasks.sandbox.program import CannotStart, Program, Stopped
from tasks.sandbox.warm import templates
from tasks.sandbox.warm.kind import ImportsAhead

PROGRAM = """\
import fcntl, os, signal, sys, time
out, seconds = sys.argv[1], float(sys.argv[2])

def note(name):
    with open(os.path.join(out, name), "a") as file:
        file.write(f"{os.getpid()}\\n")

alive = open(os.path.join(out, "alive"), "w")
try:
    fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("doubled")
note("begun")
worker = os.fork()
if not worker:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(seconds)
    os._exit(0)
if os.waitpid(worker, 0)[1]:
    sys.exit("its worker was killed")
note("model")
"""
TRAINING = 0.3
"""Seconds that a run sleeps."""
PATIENCE = 60.0
"""Seconds until a process counts as left running; on a busy machine, a supervisor needs some to end its processes."""
SILENCE = 600.0
"""Seconds without a word of the engine after which its run counts as lost."""
ENGINE_SHARE, TEMPLATE_SHARE = 0.03, 0.03
"""Of the kills."""
LOOK_EVERY = 25
"""Strikes until the processes of runs that are over are looked for: that takes a while, among all of the machine's."""
FIRST_SECONDS = 30.0
MOST_LOST = 20
"""Runs; with more, something is wrong with the whole."""
IN_PEACE = 3
"""Runs at the end, which nobody strikes."""
UNKNOWN = 1.0
"""Seconds of a run, until some have been measured."""
Figures = dict[str, Any]


@dataclass
class Engine:
    """A process that runs programs, and what it tells of them."""

    pid: int
    level: Level
    report: int
    run: int
    """The number of the run under way."""
    _heard: bytes = b""

    def told(self, seconds: float) -> dict[str, Any] | None:
        """Its next message; None when there is none in so many seconds. Raises EOFError once it has ended."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._heard:
            if not select.select([self.report], [], [], max(deadline - time.monotonic(), 0))[0]:
                return None
            if not (chunk := os.read(self.report, 2**16)):
                raise EOFError
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


@dataclass
class Kills:
    """The lives of the engine, the kills, and what came of them."""

    folder: Path
    modules: ImportsAhead
    draw: random.Random
    campaign: str
    """By which its processes are known."""
    struck: set[int] = field(default_factory=set)
    killed: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    cold: int = 0
    lives: int = 0
    runs: int = 0
    _took: float = UNKNOWN
    _strikes: int = 0

    def go(self, kills: int) -> None:
        while not (self.folder / "stop").exists():
            self._live(kills)
            if len(self.lost) > MOST_LOST:
                return
        if (self.folder / "templates").exists():
            self.left.append("the folder of the templates")

    def count_doubled(self) -> None:
        runs = sorted(self.folder.glob("[0-9]*/out"))
        self.doubled = [
            f"run {out.parent.name}" for out in runs if (out / "doubled").exists() or lines(out / "model") > 1
        ]

    def _live(self, kills: int) -> None:
        """One life of the engine, until it is killed or there have been enough kills."""
        engine = self._begin()
        try:
            while self.killed.total() < kills:
                if self.draw.random() < ENGINE_SHARE:
                    self._follow(engine, self.draw.uniform(0, 1.2 * self._took))
                    self.killed["engine SIGKILL"] += 1
                    return
                self._follow(engine, self.draw.uniform(0, 1.2 * self._took))
                self._strike(engine)
            last = engine.run + IN_PEACE
            while engine.run < last:
                self._follow(engine, SILENCE, until=engine.run + 1)
            self._stop(engine)
        except EOFError:
            self.lost.append(f"run {engine.run}: the engine ended by itself")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine.pid, signal.SIGKILL)
            if (code := os.waitstatus_to_exitcode(os.waitpid(engine.pid, 0)[1])) > 0:
                self.lost.append(f"run {engine.run}: the engine ended with {code}")
            with contextlib.suppress(EOFError):
                while message := engine.told(0):  # what it has said and nobody has heard yet
                    self._note(engine, message)
            os.close(engine.report)
            self._check_gone(f"the life of engine {self.lives}")

    def _stop(self, engine: Engine) -> None:
        """Have the engine end as it should, with its templates."""
        (self.folder / "stop").touch()
        with contextlib.suppress(EOFError):
            while True:
                self._follow(engine, SILENCE, until=engine.run + 1)

    def _begin(self) -> Engine:
        self.lives += 1
        levels: list[Level] = [finding.level for finding in findings() if finding.works]
        level = levels[self.lives % len(levels)]
        report, say = os.pipe()
        self.runs += 1
        if pid := os.fork():
            os.close(say)
            return Engine(pid, level, report, self.runs)
        code = 70
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.close(report)
            run_programs(self.folder, self.campaign, self.runs, level, self.modules, say)
            code = 0
        except Exception:  # noqa: BLE001 (a fork must not go on in its parent's code)
            traceback.print_exc()
        finally:
            os._exit(code)

    def _follow(self, engine: Engine, seconds: float, until: int = sys.maxsize) -> None:
        """Hear the engine for so many seconds, or until it comes to a run."""
        deadline = time.monotonic() + seconds
        while engine.run < until and (left := deadline - time.monotonic()) > 0:
            message = engine.told(min(left, SILENCE))
            if message is None:
                if seconds >= SILENCE:
                    self.lost.append(f"run {engine.run}: nothing was heard of its end")
                    raise RuntimeError(f"the engine is silent for {SILENCE:g} s: {self.lost}")
                return
            self._note(engine, message)

    def _note(self, engine: Engine, message: dict[str, Any]) -> None:
        """What the engine says of a run that is over."""
        number, why, place = message["run"], message["why"], self.folder / f"{message['run']:06d}"
        done = lines(place / "out/model")
        self._took = (self._took + message["seconds"]) / 2
        self.cold += message["cold"]
        self.ends[why.partition(" (")[0].partition("\n")[0][:60] or "well"] += 1
        if why and number not in self.struck:
            self.lost.append(f"run {number}, which nobody struck: {why}")
        if not why and not done:
            self.lost.append(f"run {number}: no whole model")
        self.runs = engine.run = number + 1

    def _strike(self, engine: Engine) -> None:
        """Kill one of the processes that there are at this moment, or the first that there are after it."""
        deadline = time.monotonic() + FIRST_SECONDS
        while not (found := forked_relatives(engine.pid)).keys() - {"template"} and time.monotonic() < deadline:
            self._follow(engine, 0.01)
        template = found.pop("template", None)
        if template and self.draw.random() < TEMPLATE_SHARE:
            found = {"template": template}
        self._strikes += 1
        if self._strikes % LOOK_EVERY == 0:
            self._look_back(engine)
            return
        if not found:
            return
        role = self.draw.choice(sorted(found))
        process, number = found[role]
        which = self.draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))
        with contextlib.suppress(psutil.NoSuchProcess):
            if role != "template":
                # One without an order has no number yet, and its engine may be one further than it has said.
                self.struck |= {number} if number > 0 else {engine.run, engine.run + 1}
            process.send_signal(which)
            self.killed[f"{role} {which.name}"] += 1

    def _look_back(self, engine: Engine) -> None:
        """Processes of runs that were over before."""
        over = [each for each in of_campaign(self.campaign) if 0 < each[1] < engine.run]
        self._still_alive([process for process, _ in over], f"before run {engine.run}")

    def _check_gone(self, when: str) -> None:
        self._still_alive([process for process, _ in of_campaign(self.campaign)], f"after {when}")

    def _still_alive(self, processes: list[psutil.Process], when: str) -> None:
        """Count those that live on, and end them."""
        if not processes:
            return
        _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    self.left.append(f"{when}: {' '.join(process.cmdline())[-100:]}")
                process.kill()


def run_programs(folder: Path, campaign: str, first: int, level: Level, ahead: ImportsAhead, say: int) -> None:
    """What the engine does: one program after another, until there is a file `stop`."""
    told: list[str] = []
    with templates.opened(folder / "templates", campaign, told.append):
        number = first
        while not (folder / "stop").exists():
            began, before = time.monotonic(), len(told)
            why = run_program(folder / f"{number:06d}", f"{campaign}/{number}", level, ahead)
            message = {"run": number, "why": why, "seconds": time.monotonic() - began, "cold": len(told) - before}
            os.write(say, json.dumps(message).encode() + b"\n")
            number += 1


def run_program(place: Path, marker: str, level: Level, ahead: ImportsAhead) -> str:
    """Run the program once; why it did not end well, else empty."""
    (place / "workspace").mkdir(parents=True)
    (place / "out").mkdir()
    (place / "workspace/train.py").write_text(PROGRAM)
    confinement.give(place / "out", level)
    try:
        with Program(
            ["python", "train.py", str(place / "out"), str(TRAINING)], cwd=place / "workspace", log=place / "log.txt",
            marker=marker, level=level, view=VisiblePaths((place / "workspace",), (place / "out",)),
            limits=Limits(), ahead=ahead,
        ) as program:  # fmt: skip
            while (status := program.poll(0.05)) is None:
                pass
            return f"{program.describe(status)} ({program.tail()})" if status else ""
    except (CannotStart, Stopped) as fault:
        return str(fault)


def lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


@contextlib.contextmanager
def place(keep: Path | None) -> Iterator[Path]:
    if keep:
        keep.mkdir(parents=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="nightshift-warm-kills-") as folder:
        yield Path(folder)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the engine is ended, too
    parser = argparse.ArgumentParser(description="Programs that start warm, killed at random moments.")
    parser.add_argument("--kills", type=int, default=1000, help="of everything together (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the kills (0)")
    parser.add_argument("--modules", nargs="+", default=imports_ahead.CONTROL, help="what a template imports")
    parser.add_argument("--keep", type=Path, help="a new folder to run in, which stays")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    with place(options.keep) as folder:
        kills = Kills(
            folder, ImportsAhead(tuple(options.modules)), random.Random(options.seed), f"warm-kills-{os.getpid()}"
        )
        with contextlib.suppress(KeyboardInterrupt):  # the figures until then count
            kills.go(options.kills)
        kills.count_doubled()
    figures: Figures = {
        "kills": kills.killed.total(), "runs": kills.runs - 1, "lives": kills.lives, "lost": len(kills.lost),
        "doubled": len(kills.doubled), "left_running": len(kills.left), "cold_starts": kills.cold,
        "killed": dict(sorted(kills.killed.items())), "ends": dict(kills.ends.most_common()),
        "wrong": kills.lost + kills.doubled + kills.left,
    }  # fmt: skip
    print(json.dumps(figures, indent=2)) if options.json else show(figures)
    sys.exit(bool(figures["wrong"]))


def show(figures: Figures) -> None:
    console = Console(highlight=False)
    for title in ("killed", "ends"):
        table = Table(title, "times")
        for name, times in figures[title].items():
            table.add_row(name, str(times))
        console.print(table)
    for name, value in figures.items():
        if isinstance(value, int):
            console.print(f"{name:<14} {value}")
    for words in figures["wrong"]:
        console.print(words, style="red")


if __name__ == "__main__":
    main()
