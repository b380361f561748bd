"""The episode of a campaign: the champion's policy beside the baseline's, in one GIF.

    record(ledger, champion, certificate, "auto")     # writes episode.gif, episode.png and episode.json

Both play the same episode, from a seed that no judgement uses. Their checkpoints are those of the certificate's first
runs where these lie in the campaign, because a search picks lucky ones, else those of the search. Nothing that a trial
left is read outside of the sandbox in which its program answers.

It is no measurement, and no failure here is a fault of the campaign: it becomes a reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter, ValidationError

from environments import Environment, judge_name
from environments.judges import Judge, Misbehaved
from environments.plugins import Refused
from tasks.certifying.certificate import Certificate
from tasks.certifying.group_design import Arm
from tasks.evaluate import PipedCandidate, changed_since, view
from tasks.recording.stage import GIF, STILL, EpisodeStage
from tasks.sandbox.child_environment import NotAProgram
from tasks.sandbox.isolation import Isolation, choose
from tasks.sandbox.program import CannotStart, Program
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.system.files import write_atomic
from tasks.trial import Run, Trial, baseline

SECONDS = 120.0
"""For all of it. Usually it takes a few; loading packages on a busy machine takes most of them."""
START_SECONDS, ANSWER_SECONDS, EPISODE_SECONDS = 45.0, 5.0, 50.0
"""Most time that a policy is given here, where its judge may give more."""
WORK = ".recording-"
"""Folder of one recording, with the pid of its process."""
FILE = "episode.json"
REASON = 2000
"""Characters of a reason."""


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
    seconds: float
    """In the environment's own time."""
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
    source: str = ""
    """The source of the judge's settings under which it was played, where it has several."""
    reason: str = ""
    """Why there is none; else empty."""


RECORDING = TypeAdapter(Recording)


@dataclass(frozen=True)
class _Side:
    name: Arm
    trial: Trial
    place: TrialDir
    run: Run
    score: float | None
    is_fresh: bool
    """Whether it is a run of the certificate."""


def load(path: Path) -> Recording | None:
    """The recording in a campaign's directory; None without one."""
    try:
        return RECORDING.validate_json((path / FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def record(
    ledger: Ledger, champion: Trial | None, certificate: Certificate | None, asked: str, allow_unsandboxed: bool = False
) -> None:
    """Record the champion beside the baseline, if that has not been done, or fresh runs are there since.

    Environments without a control judge, and campaigns whose baseline stands, have nothing to record.

    Args:
        certificate: The champion's newest, if there is one.
        asked: The isolation level.
        allow_unsandboxed: Whether an edited program may play without a sandbox.
    """
    history = ledger.history()
    first = baseline(history)
    if judge_name(ledger.environment.judge) != "control" or champion is None or first is None or champion.number == 0:
        return
    trials: dict[Arm, Trial] = {"baseline": first, "champion": champion}
    sides = [_side(ledger, name, trial, certificate) for name, trial in trials.items()]
    known = load(ledger.path)
    has_one = bool(known and known.champion == champion.number and not known.reason and (ledger.path / GIF).is_file())
    runs = tuple(side.run.dir for side in sides)
    is_fresher = any(side.is_fresh for side in sides) and known is not None and known.runs != runs
    if has_one and not is_fresher:
        return
    source, judge = _judge(ledger.environment.judge)
    try:
        isolation = Isolation(choose(asked), allow_unsandboxed)
        played, files = _recorded(ledger, sides, judge, isolation)
        made = Recording(champion.number, runs, tuple(played), source)
    except (Misbehaved, CannotStart, NotAProgram, Refused, OSError) as wrong:
        if has_one:
            return
        made, files = Recording(champion.number, runs, reason=str(wrong).strip()[:REASON]), {}
    _store(ledger.path, made, files)


def _store(path: Path, made: Recording, files: dict[str, bytes]) -> None:
    """Replace an earlier recording. episode.json, which speaks of the other files, goes first and comes last."""
    for old in (FILE, GIF, STILL):
        (path / old).unlink(missing_ok=True)
    for name, content in files.items():
        write_atomic(path / name, content)
    write_atomic(path / FILE, RECORDING.dump_json(made, indent=2).decode() + "\n")


def _side(ledger: Ledger, name: Arm, trial: Trial, certificate: Certificate | None) -> _Side:
    """The run whose checkpoint plays: the first of the certificate that is still whole, else of the search.

    The last that there is, where none is whole.
    """
    fresh = [(one.run, one.score, True) for one in certificate.runs if one.arm == name] if certificate else []
    searched = [(run, score, False) for run, score in zip(trial.runs, trial.score.each, strict=False)]
    found = [
        _Side(name, trial, TrialDir(ledger.path / run.dir), run, score.value, is_fresh)
        for run, score, is_fresh in (*fresh, *searched)
    ]
    return next((side for side in found if not _why_gone(side)), found[-1])


def _why_gone(side: _Side) -> str | None:
    """Why a run's checkpoint cannot play any more; None if it can."""
    if side.run.status != "finished":
        return f"{side.run.dir} did not finish"
    if not side.place.out.is_dir() or not side.place.workspace.is_dir():
        return f"{side.run.dir} is not there any more"
    return changed_since(side.place, side.run)


def _judge(judge: Judge) -> tuple[str, dict[str, Any]]:
    """The fields of the judge for one episode with pictures, and the name of the source that it is played under."""
    fields = judge.model_dump(mode="json")
    source = next(iter(fields["sources"]), "")
    own = fields["sources"][source]["kwargs"] if source else {}
    fields |= {
        "kwargs": {**fields["kwargs"], **own, "render_mode": "rgb_array"}, "sources": {}, "episodes": 1,
        "other_episodes": 0, "start_seconds": min(fields["start_seconds"], START_SECONDS),
        "answer_seconds": min(fields["answer_seconds"], ANSWER_SECONDS),
        "total_seconds": min(fields["total_seconds"], EPISODE_SECONDS),
    }  # fmt: skip
    return source, fields


def _recorded(
    ledger: Ledger, sides: list[_Side], judge: dict[str, Any], isolation: Isolation
) -> tuple[list[PlayedEpisode], dict[str, bytes]]:
    """Every side's episode, and the files that show them."""
    environment, seed = ledger.environment, ledger.seed("recording", ledger.key(0))
    marker = f"{ledger.campaign.campaign_id}/recording-{os.getpid()}"
    readable = tuple(environment.folder / path for path in environment.readable)
    with _work(ledger.path) as folder, EpisodeStage(folder, isolation.level, readable, marker, SECONDS) as stage:
        played = []
        for side in sides:
            try:
                with _policy(environment, isolation, side, folder, marker) as policy:
                    told = stage.play(side.name, judge, seed, policy)
            except (Misbehaved, NotAProgram) as wrong:
                raise Misbehaved(f"the {side.name}, {side.run.dir}: {wrong}") from wrong
            said = (told.total, told.steps, told.seconds, told.cut)
            played.append(PlayedEpisode(side.name, side.trial.number, side.run.dir, *said, side.score, side.is_fresh))
        return played, stage.draw()


@contextmanager
def _policy(
    environment: Environment, isolation: Isolation, side: _Side, folder: Path, marker: str
) -> Iterator[PipedCandidate]:
    """A side's program, started as it is when it is judged."""
    if gone := _why_gone(side):
        raise Misbehaved(gone)
    if not isolation.may_run(side.trial.proposal.edit):
        raise Misbehaved("its program is edited, and there is no sandbox (isolation none)")
    if side.run.isolation != isolation.level:
        file_trees.open_to_all(side.place.out)
    workspace.relocate(side.place, environment)
    command = workspace.fill(environment.judge.command(), {})
    with Program(
        command, cwd=side.place.workspace, log=folder / f"{side.name}.txt", marker=marker,
        level=isolation.level, view=view(environment, side.place), limits=environment.limits, pipes=True,
    ) as program:  # fmt: skip
        try:
            yield PipedCandidate(program, Path(os.devnull))
        except Misbehaved as wrong:
            program.kill()  # its last words are read then
            raise Misbehaved(f"{wrong}\n{program.tail()}".rstrip()) from wrong


@contextmanager
def _work(path: Path) -> Iterator[Path]:
    """A folder in a campaign's directory for one recording; also removes those that a kill left."""
    for old in path.glob(f"{WORK}*"):
        pid = old.name.removeprefix(WORK)
        if pid == str(os.getpid()) or not (pid.isdecimal() and psutil.pid_exists(int(pid))):
            file_trees.remove(old)
    folder = path / f"{WORK}{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        with suppress(OSError):
            file_trees.remove(folder)
