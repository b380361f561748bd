"""The episode of a campaign: the champion's policy beside the baseline's, in one GIF.

    record(ledger, champion, "auto")     # writes episode.gif, episode.png and episode.json

Both play the same episode, from a seed that no judgement uses. Their checkpoints are those of the certificate's first
runs where these lie in the campaign, because a search picks lucky ones, else those of the search. A process of its own
plays and draws (tasks/recording/film.py), with the policies in their sandboxes.

It is no measurement, and no failure here is a fault of the campaign: it becomes a reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from environments import judge_name
from environments.plugins import Refused
from tasks.certifying.group_design import Arm
from tasks.evaluate import changed_since
from tasks.sandbox.isolation import choose
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.trial import Run, Trial, baseline

SECONDS = 120.0
"""For all of it. Usually it takes a few; loading packages on a busy machine takes most of them."""
FILE, GIF, STILL = "episode.json", "episode.gif", "episode.png"
REASON = 2000
"""Characters of a reason."""


class CannotRecord(Exception):
    """The episode cannot be drawn; the message is the reason."""


@dataclass(frozen=True)
class PlayedEpisode:
    """One policy's part."""

    name: Arm
    trial: int
    run: str
    """The run's directory, relative to the campaign's."""
    total: float
    """Undiscounted return of what was played."""
    steps: int
    cut: bool
    """Whether the episode was longer than what is shown."""
    score: float | None
    """Of its run, by the judge."""
    is_fresh: bool
    """Whether its run is the certificate's."""


@dataclass(frozen=True)
class Recording:
    """What was recorded, or why nothing was."""

    champion: int
    """The trial."""
    runs: tuple[str, ...]
    """The directories of the baseline's and the champion's run."""
    episodes: tuple[PlayedEpisode, ...] = ()
    reason: str = ""
    """Why there is none; else empty."""


RECORDING = TypeAdapter(Recording)


@dataclass(frozen=True)
class Side:
    """A policy that plays: a run of the certificate or of the search."""

    name: Arm
    trial: Trial
    run: Run
    score: float | None
    is_fresh: bool


def load(path: Path) -> Recording | None:
    """The recording in a campaign's directory; None without one."""
    try:
        return RECORDING.validate_json((path / FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def record(ledger: Ledger, champion: Trial | None, asked: str, allow_unsandboxed: bool = False) -> None:
    """Record the champion beside the baseline, if that has not been done, or fresh runs are there since.

    Environments without a control judge, and campaigns whose baseline stands, have nothing to record.

    Args:
        asked: The isolation level.
        allow_unsandboxed: Whether an edited program may play without a sandbox.
    """
    first = baseline(ledger.history())
    if judge_name(ledger.environment.judge) != "control" or champion is None or first is None or champion.number == 0:
        return
    sides, known = sides_of(ledger, champion.number), load(ledger.path)
    runs = tuple(side.run.dir for side in sides)
    has_one = bool(known and known.champion == champion.number and not known.reason and (ledger.path / GIF).is_file())
    if has_one and known and (known.runs == runs or not any(side.is_fresh for side in sides)):
        return
    for old in ledger.path.glob(".recording-*"):  # left by one that was killed
        file_trees.remove(old)
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=ledger.path) as folder:
        try:
            made = _filmed({
                "campaign": ledger.campaign.name, "champion": champion.number, "level": choose(asked),
                "allow_unsandboxed": allow_unsandboxed, "folder": folder,
            })  # fmt: skip
        except (Refused, OSError, subprocess.SubprocessError, ValidationError) as fault:
            made = Recording(champion.number, runs, reason=str(fault)[:REASON])
        if made.reason and has_one:
            return
        (ledger.path / FILE).unlink(missing_ok=True)  # it speaks of the other files, so it goes first and comes last
        for name in (GIF, STILL):
            (ledger.path / name).unlink(missing_ok=True)
            if not made.reason:
                Path(folder, name).rename(ledger.path / name)
    (ledger.path / FILE).write_bytes(RECORDING.dump_json(made, indent=2) + b"\n")


def sides_of(ledger: Ledger, champion: int) -> list[Side]:
    """The runs whose checkpoints play: the first of the certificate that is still whole, else of the search."""
    newest = next((one for one in reversed(ledger.certificates()) if not one.elsewhere), None)
    fresh = newest.runs if newest and newest.champion == champion else ()
    found, arms = [], dict[int, Arm]({0: "baseline", champion: "champion"})
    trials = {trial.number: trial for trial in ledger.history()}
    for number, name in arms.items():
        trial = trials[number]
        runs = [Side(name, trial, one.run, one.score.value, True) for one in fresh if one.arm == name]
        pairs = zip(trial.runs, trial.score.each, strict=False)
        runs += [Side(name, trial, run, score.value, False) for run, score in pairs]
        found.append(next((side for side in runs if not why_gone(ledger, side.run)), runs[-1]))
    return found


def why_gone(ledger: Ledger, run: Run) -> str | None:
    """Why a run's checkpoint cannot play any more; None if it can."""
    place = TrialDir(ledger.path / run.dir)
    if run.status != "finished":
        return "it did not finish"
    if not place.out.is_dir() or not place.workspace.is_dir():
        return "its files are not there any more"
    return changed_since(place, run)


def _filmed(request: dict[str, object]) -> Recording:
    """What was played, with the pictures in the request's folder; or why nothing was."""
    command = [sys.executable, "-m", "tasks.recording.film", json.dumps(request)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SECONDS
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise OSError(f"what draws it ended with status {done.returncode}: {last}")
    return RECORDING.validate_json(done.stdout)
