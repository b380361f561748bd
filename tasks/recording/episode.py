"""The episode of a campaign: the champion's policy beside the baseline's, in one GIF.

    record(ledger, champion, certificate, "auto")     # writes episode.gif, episode.png and episode.json

Both play the same episode, from a seed that no judgement uses. Their checkpoints are those of the certificate's first
runs where these lie in the campaign, because a search picks lucky ones, else those of the search. Policies and the
program that steps and draws (environments/recording.py) are in sandboxes; the engine connects their pipes and reads
numbers and two pictures.

It is no measurement, and no failure here is a fault of the campaign: it becomes a reason.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
from pydantic import BaseModel, TypeAdapter, ValidationError

import environments
from environments import judge_name
from environments.judges import Misbehaved
from environments.limits import Limits
from environments.plugins import Refused
from tasks.certifying.certificate import Certificate
from tasks.certifying.group_design import Arm
from tasks.evaluate import changed_since, view
from tasks.sandbox import confinement
from tasks.sandbox.child_environment import NotAProgram
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.isolation import Isolation, choose
from tasks.sandbox.program import CannotStart, Program
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.store.safe_read import open_below
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.system.clock import clock
from tasks.system.files import write_atomic
from tasks.trial import Run, Trial, baseline

SECONDS = 120.0
"""For all of it. Usually it takes a few; loading packages on a busy machine takes most of them."""
WORK = ".recording-"
"""Folder of one recording, with the pid of its process."""
FILE, GIF, STILL = "episode.json", "episode.gif", "episode.png"
STARTS = {GIF: b"GIF89a", STILL: b"\x89PNG\r\n\x1a\n"}
FILE_BYTES = 8 * 2**20
"""Most of one file."""
REASON = 2000
"""Characters of a reason."""
LIMITS = Limits(memory_gb=4, processes=256, file_gb=0.3, out_gb=0.6, out_files=100, scratch_gb=0.1, output_mb=4)
CODE = Path(environments.__file__ or "").parent
BEGIN = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("environments", f"{sys.argv[1]}/__init__.py")
sys.modules["environments"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["environments"])
from environments.recording import main
main()
"""
"""The rest of the checkout is not visible, and Python finds no package in a folder that it cannot list."""


class Answer(BaseModel):
    """What the program that draws says of an episode."""

    total: float = 0.0
    """Undiscounted return of what was played."""
    steps: int = 0
    cut: bool = False
    """Whether the episode was longer than what is shown."""
    reason: str = ""
    """Why there is none; else empty."""


@dataclass(frozen=True)
class PlayedEpisode:
    """One policy's part."""

    name: Arm
    trial: int
    run: str
    """The run's directory, relative to the campaign's."""
    total: float
    steps: int
    cut: bool
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
class _Side:
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
    first = baseline(ledger.history())
    if judge_name(ledger.environment.judge) != "control" or champion is None or first is None or champion.number == 0:
        return
    sides = [_side(ledger, "baseline", first, certificate), _side(ledger, "champion", champion, certificate)]
    known, runs = load(ledger.path), tuple(side.run.dir for side in sides)
    has_one = bool(known and known.champion == champion.number and not known.reason and (ledger.path / GIF).is_file())
    if has_one and known and (known.runs == runs or not any(side.is_fresh for side in sides)):
        return
    try:
        played, files = _recorded(ledger, sides, Isolation(choose(asked), allow_unsandboxed))
        made = Recording(champion.number, runs, played)
    except (Misbehaved, CannotStart, NotAProgram, Refused, OSError) as wrong:
        if has_one:
            return
        made, files = Recording(champion.number, runs, reason=str(wrong).strip()[:REASON]), {}
    for old in (FILE, GIF, STILL):  # episode.json, which speaks of the other files, goes first and comes last
        (ledger.path / old).unlink(missing_ok=True)
    for name, content in files.items():
        write_atomic(ledger.path / name, content)
    write_atomic(ledger.path / FILE, RECORDING.dump_json(made, indent=2).decode() + "\n")


def _side(ledger: Ledger, name: Arm, trial: Trial, certificate: Certificate | None) -> _Side:
    """The run whose checkpoint plays: the first of the certificate that is still whole, else of the search."""
    found = (
        [_Side(name, trial, one.run, one.score.value, True) for one in certificate.runs if one.arm == name]
        if certificate
        else []
    )
    found += [
        _Side(name, trial, run, score.value, False) for run, score in zip(trial.runs, trial.score.each, strict=False)
    ]
    return next((side for side in found if not _why_gone(ledger, side.run)), found[-1])


def _why_gone(ledger: Ledger, run: Run) -> str | None:
    """Why a run's checkpoint cannot play any more; None if it can."""
    place = TrialDir(ledger.path / run.dir)
    if run.status != "finished":
        return "it did not finish"
    if not place.out.is_dir() or not place.workspace.is_dir():
        return "its files are not there any more"
    return changed_since(place, run)


def _recorded(
    ledger: Ledger, sides: list[_Side], isolation: Isolation
) -> tuple[tuple[PlayedEpisode, ...], dict[str, bytes]]:
    """Every side's episode, and the files that show them."""
    ends, judge = clock() + SECONDS, ledger.environment.judge.model_dump(mode="json")
    with _work(ledger.path) as folder:
        drawn = folder / "drawn"
        drawn.mkdir()
        confinement.give(drawn, isolation.level)
        played = []
        for count, side in enumerate(sides, 1):
            names = [each.name for each in sides[:count]]
            asked = {
                "judge": judge,
                "seed": ledger.seed("recording", ledger.key(0)),
                "folder": str(drawn),
                "names": names,
            }
            try:
                answer = _play(ledger, side, asked | {"draws": count == len(sides)}, isolation, drawn, ends)
            except (Misbehaved, NotAProgram) as wrong:
                raise Misbehaved(f"the {side.name}, {side.run.dir}: {wrong}") from wrong
            facts = (answer.total, answer.steps, answer.cut, side.score, side.is_fresh)
            played.append(PlayedEpisode(side.name, side.trial.number, side.run.dir, *facts))
        return tuple(played), {name: _file(drawn, name) for name in (GIF, STILL)}


def _play(
    ledger: Ledger, side: _Side, asked: dict[str, object], isolation: Isolation, drawn: Path, ends: float
) -> Answer:
    """Let one side's program, started as it is when it is judged, play with the program that draws."""
    environment, place = ledger.environment, TrialDir(ledger.path / side.run.dir)
    if gone := _why_gone(ledger, side.run):
        raise Misbehaved(gone)
    if not isolation.may_run(side.trial.proposal.edit):
        raise Misbehaved("its program is edited, and there is no sandbox (isolation none)")
    if side.run.isolation != isolation.level:
        file_trees.open_to_all(place.out)
    workspace.relocate(place, environment)
    marker, logs = f"{ledger.campaign.campaign_id}/recording-{os.getpid()}", drawn.parent
    command = workspace.fill(environment.judge.command(), {})
    seen = VisiblePaths((CODE, *(environment.folder / path for path in environment.readable)), (drawn,))
    begin = ["python", "-P", "-c", BEGIN, str(CODE), json.dumps(asked)]
    with (
        Program(command, cwd=place.workspace, log=logs / f"{side.name}.txt", marker=marker, level=isolation.level,
                view=view(environment, place), limits=environment.limits, pipes=True) as policy,
        Program(begin, cwd=drawn, log=logs / "stage.txt", marker=marker, level=isolation.level, view=seen,
                limits=LIMITS, pipes=True) as stage,
    ):  # fmt: skip
        _copy(stage.process.stdout, policy.process.stdin)
        _copy(policy.process.stdout, stage.process.stdin)
        while stage.poll(0.05) is None:
            policy.poll(0)
            if clock() > ends:
                raise Misbehaved("was not done in time")
        policy.kill()  # its last words are read then
        if (file := open_below(drawn, f"{side.name}.json")) is None:
            raise Misbehaved(f"what draws it said nothing\n{stage.tail()}".rstrip())
        with file:
            answer = Answer.model_validate_json(file.read(FILE_BYTES))
        if answer.reason:
            raise Misbehaved(f"{answer.reason}\n{policy.tail()}".rstrip())
        return answer


def _copy(source: IO[bytes] | None, sink: IO[bytes] | None) -> None:
    """Pass on what one program prints to the other, in a thread that ends with either."""
    assert source is not None and sink is not None, "both are started with pipes"
    reading = os.dup(source.fileno())  # the original may be closed, and its number be another file's, while it is read

    def copy() -> None:
        with suppress(OSError, ValueError), os.fdopen(reading, "rb", buffering=0) as pipe:
            while data := pipe.read(2**16):
                sink.write(data)
                sink.flush()
        with suppress(OSError, ValueError):
            sink.close()

    threading.Thread(target=copy, daemon=True).start()


def _file(folder: Path, name: str) -> bytes:
    if (file := open_below(folder, name)) is None:
        raise Misbehaved(f"{name} was not drawn")
    with file:
        content = file.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES or not content.startswith(STARTS[name]):
        raise Misbehaved(f"{name} is no such picture, or has more than {FILE_BYTES // 2**20} MiB")
    return content


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
