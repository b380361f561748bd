"""Does a campaign survive being killed? Two campaigns are killed again and again and checked afterwards.

    python -m benchmarks.chaos [--kills 200] [--parallel 1] [--seed 0] [--short] [--server URL] [--json]

Two real campaigns, at a Prefect server of their own and with MLflow (sqlite), whose trials take half a second:

    night    its engine is killed (SIGKILL, SIGTERM, SIGHUP, and SIGTERM with SIGKILL close behind), at random moments
             of a life and right after a mark of its work: a result begun or written, a workspace, a model, a commit,
             trial.json, a line of results.tsv, MLflow's record. Now and then the server is killed and started again.
    struck   its trials are killed (a fifth of the kills): the program, the worker that it has started, or their
             supervisor. That is the trial's own end: a crash, whose number is noted. The engine is killed between, too.

After every kill the campaign is resumed. At the end it goes on to a whole number of trials without a kill, and another
one of the same seed runs undisturbed:

    lost          finished trials that vanished, or whose stored proposal, score or verdict is another than before
    doubled       runs that were trained anew although their result was stored whole, and trials with two runs in MLflow
    orphans       processes of the trials, or their supervisors, that are alive at the end
    slots_held    slots that nobody holds and nobody can get, at the end
    ledger_equal  `night`, with --parallel 1: every proposal, score and verdict is that of the undisturbed campaign
                  (TPE, so each proposal depends on all before); with more: each trial was decided once, in its turn.
                  `struck` (random search, so that proposals depend on nothing): all the same but for crashes of
                  trials that were struck, each verdict being what the scores before it say.

A life is a process of the command. `mean_resume_seconds`: from the start of `nightshift resume` until the campaign is
held and its event `life` is written. With `--short`, for a test, there is `night` alone, without MLflow.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from benchmarks import lives
from benchmarks.campaigns import FOREIGN, free_port
from benchmarks.lives import Life, Server
from benchmarks.tables import show
from tasks.machine.slots import Slots
from tasks.store.ledger import Ledger
from tasks.trial import TIMES, History, Trial

STRUCK_SHARE = 0.2
SERVER_SHARE = 0.02
START_SHARE, MARK_SHARE = 0.1, 0.7
"""Of the engine's kills: those in its start; and of the others those right after a mark, the rest at any moment."""
RANDOM_SECONDS = 4.0
AHEAD = 12
"""Trials that a life has before it, more than it can do until it is killed."""
PATIENCE = 20
"""Lives that may end by themselves until something is wrong with the whole."""
LAST = 2
"""Trials that are done in peace at the end."""
Figures = dict[str, Any]
Campaign = Literal["night", "struck"]


@dataclass
class Tally:
    """What happened to one campaign."""

    kills: Counter[str] = field(default_factory=Counter)
    resumes: list[float] = field(default_factory=list)
    """Seconds until a life of the command's own began."""
    lost: set[int] = field(default_factory=set)
    doubled: set[str] = field(default_factory=set)
    struck: set[int] = field(default_factory=set)
    ends: list[str] = field(default_factory=list)
    """Lives that ended otherwise than they were made to."""


@dataclass
class Setup:
    """What the campaigns have in common; its folder is a home of its own."""

    folder: Path
    url: str
    server: Server | None
    """Which may be killed; None: it is somebody else's."""
    draw: random.Random
    options: argparse.Namespace


class Chaos:
    """One campaign, its lives and their ends."""

    def __init__(self, name: Campaign, setup: Setup) -> None:
        self.name, self.setup, self.draw = name, setup, setup.draw
        self.parallel, self.short = setup.options.parallel, setup.options.short
        self.tally = Tally()
        folder = setup.folder
        self._log = folder / f"{name}.log"
        self._spec = lives.write_problem(
            folder / name,
            seconds=0.05 if name == "night" else 0.6,
            proposer="tpe" if name == "night" else "random_search",
            seed=setup.options.seed,
        )
        self._stored: dict[int, Any] = {}
        self._trained: dict[Path, tuple[int, int]] = {}

    def run(self, kills: int) -> None:
        """Kill it so many times, then let it come to its end."""
        while self.tally.kills.total() < kills:
            with self._life() as life:
                if self.name == "night":
                    self._end_somehow(life)
                else:
                    self._strike(life, kills)
        self.finish(self.name, self._trials() + LAST)

    def finish(self, campaign: str, trials: int) -> None:
        """Have a campaign do the rest of so many trials, undisturbed."""
        with Life(self._command(campaign, trials), self._log) as life:
            self._note_resume(campaign, life)
        if life.returncode:
            self.tally.ends.append(f"{campaign}: undisturbed, it ended with {life.returncode}")
        if campaign == self.name:
            self._look()

    @contextmanager
    def _life(self) -> Iterator[Life]:
        """A life that has somehow ended when the block does; what it left is looked at then."""
        life = Life(self._command(self.name, self._trials() + AHEAD), self._log)
        try:
            yield life
        finally:
            if not life.is_over:
                life.kill()
                life.wait()
            self._look()

    def _command(self, campaign: str, trials: int) -> list[str]:
        asked = ["--trials", str(trials), "--parallel", str(self.parallel), "--server", self.setup.url]
        asked += ["--tracking", "off"] * self.short
        if Ledger.exists(campaign):
            return ["resume", campaign, *asked]
        return ["run", str(self._spec), "--name", campaign, *asked]

    def _note_resume(self, campaign: str, life: Life) -> bool:
        """Wait until a life has begun; whether it has."""
        resumes = Ledger.exists(campaign)
        seconds = lives.wait_for_life(campaign, life)
        if seconds is not None and resumes:
            self.tally.resumes.append(seconds)
        return seconds is not None

    def _end_somehow(self, life: Life) -> None:
        """Kill the engine, at a mark, at any moment of its work or of its start; or, seldom, the server first."""
        when = "any moment"
        if self.draw.random() < START_SHARE:
            life.ends_within(self.draw.uniform(0.0, RANDOM_SECONDS))
        elif self._note_resume(self.name, life):
            if self.draw.random() < MARK_SHARE:
                when = self.draw.choice(list(lives.MARKS)[: -1 if self.short else None])  # the last is MLflow's
                for _ in range(self.draw.choice((1, 1, 2))):
                    if not lives.wait_for_mark(Ledger.open(self.name), life, when, self.parallel):
                        break
            else:
                life.ends_within(self.draw.uniform(0.0, RANDOM_SECONDS))
        if self.setup.server and self.draw.random() < SERVER_SHARE and not life.is_over:
            self.setup.server.restart()
            self.tally.kills["server SIGKILL, any moment"] += 1
            life.ends_within(self.draw.uniform(0.0, 2 * RANDOM_SECONDS))
            if life.is_over:  # it may end for want of its server; it is resumed all the same
                return
        self._kill(life, when)

    def _kill(self, life: Life, when: str) -> None:
        """Send the engine a signal, and wait until it is gone."""
        which = self.draw.choice(("SIGKILL", "SIGKILL", "SIGKILL", "SIGTERM", "SIGHUP", "SIGTERM+SIGKILL"))
        first, _, second = which.partition("+")
        if life.is_over:
            self.tally.ends.append(f"{self.name}: a life ended by itself with {life.returncode}, before {when}")
            if len(self.tally.ends) > PATIENCE:
                raise RuntimeError(f"too many lives end by themselves, see {life.log}: {self.tally.ends}")
            return
        life.send_signal(signal.Signals[first])
        self.tally.kills[f"engine {which}, {when}"] += 1
        if second:
            life.ends_within(self.draw.uniform(0.0, 0.3))
            life.kill()
        if not life.ends_within(lives.END_SECONDS):
            self.tally.ends.append(f"{self.name}: deaf to {which} at {when} for {lives.END_SECONDS:g} s")

    def _strike(self, life: Life, kills: int) -> None:
        """Kill some processes of its trials, then the engine itself."""
        self._note_resume(self.name, life)
        for _ in range(self.draw.randint(2, 5)):
            if self.tally.kills.total() < kills and not life.is_over:
                self._strike_once(life)
        if self.tally.kills.total() < kills:
            self._kill(life, "any moment")

    def _strike_once(self, life: Life) -> None:
        deadline, wanted = time.monotonic() + 30, self.draw.choice(("program", "worker", "supervisor"))
        while time.monotonic() < deadline and not life.is_over:
            found = lives.relatives(Ledger.open(self.name), self.draw)
            if wanted in found:
                process, number = found[wanted]
                which = self.draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))
                try:
                    process.send_signal(which)
                except psutil.NoSuchProcess:
                    continue
                self.tally.kills[f"{wanted} {which.name}"] += 1
                self.tally.struck.add(number)
                life.ends_within(self.draw.uniform(0.0, 1.5))
                return
            time.sleep(0.02)

    def _trials(self) -> int:
        """Finished trials, the baseline left out."""
        return max(len(lives.history(self.name)) - 1, 0)

    def _look(self) -> None:
        """Compare what is stored with what was stored before."""
        if not Ledger.exists(self.name):
            return
        ledger = Ledger.open(self.name)
        now = {trial.number: said(trial) for trial in ledger.history()}
        self.tally.lost |= {number for number, said in self._stored.items() if now.get(number) != said}
        self._stored |= now
        for number in range(len(now) + self.parallel + 1):
            config = lives.MARKS["its workspace"](ledger, number)
            if not config.is_file() or not lives.whole(lives.MARKS["result of train"](ledger, number)):
                continue
            stamp = (config.stat().st_ino, config.stat().st_mtime_ns)
            if self._trained.setdefault(config, stamp) != stamp:
                self.tally.doubled.add(f"trial {number}")


def twice_in_mlflow(database: Path) -> list[str]:
    """Keys of trials and campaigns that have more than one run."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{database}")
    ids = [one.experiment_id for one in client.search_experiments()]
    runs = client.search_runs(ids, max_results=50_000)
    found = Counter(run.data.tags.get("nightshift.key", run.info.run_id) for run in runs)
    return [key for key, count in found.items() if count > 1]


def slots_held(home: Path) -> int:
    """Slots of this home's that cannot be had: somebody holds a lock, or what was left there does not end."""
    slots = Slots.of_cores()

    def give_up(words: str) -> None:
        raise InterruptedError(words)

    with ExitStack() as held:
        for number in range(len(slots.parts)):
            try:
                held.enter_context(slots.hold(give_up))
            except InterruptedError:
                return len(slots.parts) - number
    return 0


def measure(kills: int, setup: Setup) -> tuple[Figures, list[Chaos]]:
    """Everything, and the campaigns that it was measured with."""
    struck = 0 if setup.options.short else round(kills * STRUCK_SHARE)
    shares: dict[Campaign, int] = {"night": kills - struck, "struck": struck}
    chaoses = [Chaos(name, setup) for name, share in shares.items() if share]
    for chaos in chaoses:
        chaos.run(shares[chaos.name])
    equal = [compared(chaos) for chaos in chaoses]
    tallies, home = [chaos.tally for chaos in chaoses], setup.folder / "home"
    resumes = [seconds for tally in tallies for seconds in tally.resumes]
    twice = [] if setup.options.short else twice_in_mlflow(home / "mlflow.db")
    return {
        "kills": sum(tally.kills.total() for tally in tallies),
        "lost": sum(len(tally.lost) for tally in tallies),
        "doubled": sum(len(tally.doubled) for tally in tallies) + len(twice),
        "orphans": sum(lives.left_over(Ledger.open(chaos.name)) for chaos in chaoses),
        "slots_held": slots_held(home),
        "ledger_equal": all(equal),
        "mean_resume_seconds": round(statistics.fmean(resumes), 2) if resumes else None,
    }, chaoses


@contextmanager
def settled(options: argparse.Namespace, folder: Path) -> Iterator[Setup]:
    """A home of its own in `folder`, and a server."""
    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ["NIGHTSHIFT_HOME"] = str(folder / "home")
    draw = random.Random(options.seed)
    if options.server:
        yield Setup(folder, options.server, None, draw, options)
        return
    server = Server.start(folder / "server", free_port())
    try:
        server.wait()
        yield Setup(folder, server.url, server, draw, options)
    finally:
        server.kill()


def compared(chaos: Chaos) -> bool:
    """Whether a campaign's ledger is what an undisturbed one would have been."""
    night = lives.history(chaos.name)
    if not is_in_order(night):
        return False
    if chaos.parallel > 1 and chaos.name == "night":  # what is proposed depends on what ended first
        return True
    calm = f"{chaos.name}-calm"
    chaos.finish(calm, len(night) - 1)
    if chaos.name == "struck":
        return is_equal_but(night, lives.history(calm), chaos.tally.struck)
    return is_equal(night, lives.history(calm))


def said(trial: Trial) -> tuple[object, ...]:
    """What must never change of a decided trial."""
    proposal = {key: value for key, value in asdict(trial.proposal).items() if key not in TIMES}
    return trial.number, trial.order, proposal, trial.score.value, trial.verdict.kind, trial.verdict.reason


def is_in_order(history: History) -> bool:
    """Whether trials were decided one after another, each once, without a gap."""
    each = list(range(len(history)))
    return [trial.order for trial in history] == each == sorted(trial.number for trial in history)


def is_equal(night: History, calm: History) -> bool:
    """Whether two campaigns proposed, found and decided the same."""
    return [said(trial) for trial in night] == [said(trial) for trial in calm]


def is_equal_but(struck: History, calm: History, numbers: set[int]) -> bool:
    """Whether a campaign is another but for crashes of these trials, and each verdict what the scores before say."""
    best, undisturbed = float("inf"), {trial.number: trial for trial in calm}
    for trial in struck:
        other, score = undisturbed[trial.number], trial.score.value
        if trial.proposal.params != other.proposal.params:
            return False
        crashed = trial.verdict.kind == "crash"
        if crashed and (trial.number not in numbers or score is not None):
            return False
        if not crashed and (score is None or score != other.score.value):
            return False
        if score is not None and (trial.verdict.kind == "keep") != (score < best):
            return False
        best = min(best, best if score is None else score)
    return len(struck) == len(calm)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the server is ended, too
    parser = argparse.ArgumentParser(description="A campaign that is killed again and again.")
    parser.add_argument("--kills", type=int, default=200, help="of everything together (200)")
    parser.add_argument("--parallel", type=int, default=1, help="trials at once (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the kills and of the campaigns (0)")
    parser.add_argument("--short", action="store_true", help="what a test has time for")
    parser.add_argument("--server", help="the API of a Prefect server that stays; without it, one of its own")
    parser.add_argument("--keep", type=Path, help="a new folder to run in, which stays")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightshift-chaos-") as folder:
        if options.keep:
            options.keep.mkdir(parents=True)
        with settled(options, options.keep or Path(folder)) as setup:
            figures, chaoses = measure(options.kills, setup)
    print(json.dumps(figures, indent=2)) if options.json else print_tables(figures, chaoses)
    strange = [words for chaos in chaoses for words in chaos.tally.ends]
    sys.exit("\n".join(strange) or None)


def print_tables(figures: Figures, chaoses: list[Chaos]) -> None:
    show(("figure", ""), figures.items())
    kills = [(chaos.name, *kill) for chaos in chaoses for kill in sorted(chaos.tally.kills.items())]
    show(("campaign", "killed", "times"), kills)
    for chaos in chaoses:
        if chaos.tally.lost or chaos.tally.doubled:
            print(f"{chaos.name}: lost {chaos.tally.lost}, doubled {chaos.tally.doubled}")


if __name__ == "__main__":
    main()
