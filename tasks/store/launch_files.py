"""Shared storage: what a campaign, and whoever does one of its runs elsewhere, tell each other through files.

    runs/<campaign>/launches/0007-1-run-2/     one run of a trial: its number, attempt and part
        1.json          what the first launch of it has to do, with a token that is drawn anew for each
        1.answer.json   the same token, from the machine that does it: both sides see the same files
        1.closed        nobody waits for that launch any more: it died, failed, or was called back
        lock, beat      who does the run now; no two launches ever do at the same time

Neither seeds nor keys are written here: both sides take them from the ledger.
"""

from __future__ import annotations

import fcntl
import itertools
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

from environments.judges import Use
from tasks.checkpoint import At, is_kept
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.files import write_atomic
from tasks.trial import Proposal, Run

BEAT_SECONDS = 1.0
SILENT_SECONDS = 15.0
"""Another machine whose beat has not changed for so long does not do the run any more."""
VISIBLE_SECONDS = 90.0
"""How long a file may take to be seen on another machine: NFS keeps its directories for up to 60 s."""
POLL_SECONDS = 0.5

Step = Literal["measure", "untrained"]
RESULTS: dict[Step, tuple[str, ...]] = {"measure": ("train", "evaluate"), "untrained": ("untrained",)}
"""The tasks whose stored results end each step."""


class NotShared(Exception):
    """What one side wrote is not there for the other; the message says which file, and on which machine."""


@dataclass(frozen=True)
class LaunchRequest:
    """One run that is done elsewhere: what `Bench.measure` or `Bench.control` takes, as plain values."""

    at: At
    step: Step
    proposal: Proposal
    place: str
    """The run's directory, relative to the campaign's."""
    seen: int
    """Trials of the history that it may know."""
    history: str
    """The digest of these, which has to be the same there."""
    purpose: Use = "search"
    siblings: tuple[Run, ...] = ()
    """Other runs of the proposal that no trial of the history holds yet; of `untrained`: the one that was trained."""
    early: bool = False
    judged: At | None = None
    elsewhere: str = ""
    """Another environment than the campaign's own, among those that are frozen with its certificates."""

    def is_done(self, results: Path) -> bool:
        """Whether all that it is asked for is stored."""
        return all(is_kept(results, self.at, name) for name in RESULTS[self.step])


@dataclass(frozen=True)
class Written:
    """What the campaign writes for a launch."""

    token: str
    host: str
    folder: str
    """The campaign's directory, as that host calls it."""
    asked: LaunchRequest


@dataclass(frozen=True)
class LaunchReply:
    """What the other side writes when it has read that."""

    token: str
    host: str
    folder: str
    home: str
    """Where it keeps what is its machine's own."""


WRITTEN = TypeAdapter(Written)
ANSWER = TypeAdapter(LaunchReply)


@dataclass(frozen=True)
class Launches:
    """The launches of one run."""

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
        """The number of the launch that counts: the one after the last that is closed."""
        closed = (path.stem for path in self.folder.glob("*.closed"))
        return 1 + max((int(number) for number in closed if number.isdigit()), default=0)

    def ask(self, number: int, asked: LaunchRequest) -> str:
        """Write down what a launch has to do; its token."""
        token = secrets.token_hex(8)
        written = Written(token, platform.node(), str(self.campaign), asked)
        self._write(f"{number}.json", WRITTEN.dump_json(written, indent=2).decode() + "\n")
        return token

    def read(self, number: int, token: str) -> Written:
        """What a launch has to do, as soon as it can be seen.

        Raises:
            NotShared: it is not there, or another file than the one that was written.
        """
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
            # Where not even the campaign is, there is nothing to be waited for.
            if clock() > deadline or not self.campaign.is_dir():
                raise NotShared(f"{path} on {platform.node()}: {why}")
            next(self.campaign.iterdir(), None)  # asks a file server anew
            interrupt.wait(POLL_SECONDS)

    def answer(self, number: int, token: str, home: Path) -> None:
        answer = LaunchReply(token, platform.node(), str(self.campaign), str(home))
        self._write(f"{number}.answer.json", ANSWER.dump_json(answer, indent=2).decode() + "\n")

    def answered(self, number: int) -> LaunchReply | None:
        """What the other side has said, if it has."""
        try:
            answer = ANSWER.validate_json((self.folder / f"{number}.answer.json").read_bytes())
            written = WRITTEN.validate_json((self.folder / f"{number}.json").read_bytes())
        except FileNotFoundError:
            return None
        return answer if answer.token == written.token else None

    def close(self, number: int) -> None:
        """Say that nobody waits for a launch any more."""
        self._write(f"{number}.closed", "")

    def beat(self) -> str:
        """What changes about once a second while somebody does the run; empty when nobody does."""
        try:
            return (self.folder / "beat").read_text()
        except FileNotFoundError:
            return ""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only one that does the run, for as long as the block runs; waits for whoever does it now.

        The lock is enough on one machine, and on most file servers; where it says nothing about other machines,
        their beat does.
        """
        with (self.folder / "lock").open("a") as lock:
            _take(lock.fileno())
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
        for count in itertools.count(1):
            if over.wait(BEAT_SECONDS):
                return
            self._beat(count)

    def _beat(self, count: int) -> None:
        self._write("beat", f"{platform.node()} {os.getpid()} {count}\n")

    def _write(self, name: str, text: str) -> None:
        write_atomic(self.folder / name, text)


def _take(lock: int) -> None:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            interrupt.wait(POLL_SECONDS)
        else:
            return
