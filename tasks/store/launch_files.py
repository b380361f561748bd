"""Files through which a campaign and a machine that runs one of its trainings communicate, on shared storage.

    runs/<campaign>/launches/0007-1-run-2/     one run of a trial: its number, attempt and part
        1.json          the request of the first launch, with a random token
        1.answer.json   the same token from the other machine: both sides see the same files
        1.job, 1.log    the number of its Slurm job, and that job's output
        1.closed        nobody waits for that launch any more: it died, failed, or was cancelled
        lock, beat      held by whoever does the run; never by two launches at a time

No seeds or keys are written here: both sides read them from the ledger.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from environments.judges import ComparisonBlock, Use
from tasks.checkpoint import has_result
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.files import write_atomic
from tasks.task_key import TaskKey
from tasks.trial import Proposal, Run

BEAT_SECONDS = 1.0
SILENT_SECONDS = 15.0
"""Another machine whose heartbeat is unchanged for this long no longer does the run."""
VISIBLE_SECONDS = 90.0
"""How long a file may take to become visible on another machine: NFS caches directories for up to 60 s."""
POLL_SECONDS = 0.5

Step = Literal["measure", "untrained"]
RESULTS: dict[Step, tuple[str, ...]] = {"measure": ("train", "evaluate"), "untrained": ("control",)}
"""The tasks whose stored results complete each step."""


class NotShared(Exception):
    """A file of one side is not visible to the other; the message names file and machine."""


@dataclass(frozen=True)
class LaunchRequest:
    """One run to be done elsewhere: the arguments of `Runner.measure` or `Runner.control` as plain values."""

    at: TaskKey
    step: Step
    proposal: Proposal
    place: str
    """The run's directory, relative to the campaign's."""
    seen: int
    """Number of trials of the history that it may know."""
    history: str
    """Digest of these trials, to be checked there."""
    purpose: Use = "search"
    siblings: tuple[Run, ...] = ()
    """Other runs of the proposal that are not in the history yet; for `untrained`: the trained run."""
    early: bool = False
    judged: TaskKey | None = None
    block: ComparisonBlock | None = None
    elsewhere: str = ""
    """Another environment than the campaign's own, one of those frozen with its certificates."""
    budget: float = 1.0
    """Training budget, in that of the environment."""

    def is_done(self, results: Path) -> bool:
        return all(has_result(results, self.at, name) for name in RESULTS[self.step])


@dataclass(frozen=True)
class Written:
    """The campaign's side of a launch."""

    token: str
    host: str
    folder: str
    """The campaign's directory, as named on that host."""
    asked: LaunchRequest


@dataclass(frozen=True)
class LaunchReply:
    """The other side's answer."""

    token: str
    host: str
    folder: str
    home: str


WRITTEN = TypeAdapter(Written)
ANSWER = TypeAdapter(LaunchReply)


@dataclass(frozen=True)
class Launches:
    campaign: Path
    name: str

    @classmethod
    def of(cls, campaign: Path, asked: LaunchRequest) -> Launches:
        at = asked.at
        parts = (f"{at.number:04d}", str(at.attempt), at.part, asked.step if asked.step != "measure" else "")
        return cls(campaign, "-".join(filter(None, parts)))

    @property
    def folder(self) -> Path:
        return self.campaign / "launches" / self.name

    @property
    def next(self) -> int:
        """Number of the next launch: the one after the last closed one."""
        closed = (path.stem for path in self.folder.glob("*.closed"))
        return 1 + max((int(number) for number in closed if number.isdecimal()), default=0)

    def ask(self, number: int, asked: LaunchRequest) -> str:
        token = secrets.token_hex(8)
        written = Written(token, platform.node(), str(self.campaign), asked)
        self._write(f"{number}.json", WRITTEN.dump_json(written, indent=2).decode() + "\n")
        return token

    def read(self, number: int, token: str) -> Written:
        """Read a request; NotShared if it does not become visible, or is not the file that was written."""
        path, deadline = self.folder / f"{number}.json", clock() + VISIBLE_SECONDS
        while True:
            why = "there is no such file"
            try:
                written = WRITTEN.validate_json(path.read_bytes())
            except FileNotFoundError:
                pass
            except OSError as fault:
                why = str(fault.strerror)
            else:
                if written.token == token:
                    return written
                why = "it is another file than the campaign wrote"
            # Without the campaign's directory there is nothing to wait for.
            if clock() > deadline or not self.campaign.is_dir():
                raise NotShared(f"{path} on {platform.node()}: {why}")
            next(self.campaign.iterdir(), None)  # makes a file server refresh the directory
            interrupt.wait(POLL_SECONDS)

    def answer(self, number: int, token: str, home: Path) -> None:
        answer = LaunchReply(token, platform.node(), str(self.campaign), str(home))
        self._write(f"{number}.answer.json", ANSWER.dump_json(answer, indent=2).decode() + "\n")

    def answered(self, number: int) -> LaunchReply | None:
        """The other side's answer; None if there is none yet."""
        try:
            answer = ANSWER.validate_json((self.folder / f"{number}.answer.json").read_bytes())
            written = WRITTEN.validate_json((self.folder / f"{number}.json").read_bytes())
        except FileNotFoundError:
            return None
        return answer if answer.token == written.token else None

    def close(self, number: int) -> None:
        self._write(f"{number}.closed", "")

    def submitted(self, number: int, job: str) -> None:
        """Note the Slurm job of a launch."""
        self._write(f"{number}.job", f"{job}\n")

    def job(self, number: int) -> str | None:
        """The Slurm job of a launch; None if none is noted."""
        try:
            return (self.folder / f"{number}.job").read_text().strip() or None
        except FileNotFoundError:
            return None

    def waits_for(self, number: int) -> bool:
        """Whether a launch is the run's last one, and its results are not there."""
        try:
            written = WRITTEN.validate_json((self.folder / f"{number}.json").read_bytes())
        except FileNotFoundError:
            return False
        return number >= self.next and not written.asked.is_done(self.campaign / "results")

    def beat(self) -> str:
        """A value that changes about every second while somebody does the run; empty when nobody does."""
        try:
            return (self.folder / "beat").read_text()
        except FileNotFoundError:
            return ""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the run exclusively within the block; waits for the present holder.

        The heartbeat serves where locks do not reach other machines.
        """
        with (self.folder / "lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    interrupt.wait(POLL_SECONDS)
            self._wait_for_silence()
            over = threading.Event()
            self._beat(0)
            beats = threading.Thread(target=self._beats, args=(over,), name="beat", daemon=True)
            beats.start()
            try:
                yield
            finally:
                over.set()
                beats.join()
                (self.folder / "beat").unlink(missing_ok=True)

    def _wait_for_silence(self) -> None:
        while (before := self.beat()) and before.split()[0] != platform.node():
            deadline = clock() + SILENT_SECONDS
            while self.beat() == before:
                if clock() > deadline:
                    return
                interrupt.wait(POLL_SECONDS)

    def _beats(self, over: threading.Event) -> None:
        count = 0
        while not over.wait(BEAT_SECONDS):
            self._beat(count := count + 1)

    def _beat(self, count: int) -> None:
        self._write("beat", f"{platform.node()} {os.getpid()} {count}\n")

    def _write(self, name: str, text: str) -> None:
        write_atomic(self.folder / name, text)
