"""The episode of a campaign: the champion's policy beside the baseline's, in one GIF.

    record(ledger, champion, "auto")     # writes episode.gif and episode.json

Both play the same episode, from a seed that no judgement uses, as programs in their sandboxes under the judge's own
protocol and limits; the environment is in a process of its own, with a camera before it.

It is no measurement, and no failure here is a fault of the campaign: it becomes a reason.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import PrivateAttr, TypeAdapter, ValidationError

from environments import judge_name
from environments.judges import Exam, Misbehaved
from environments.judges._playing import EnvSource, Lanes
from environments.judges._process import ForeignProcess
from environments.judges.control import Control
from environments.plugins import Refused
from tasks.evaluate import PipedCandidate, changed_since, view
from tasks.sandbox.child_environment import NotAProgram
from tasks.sandbox.isolation import Isolation, choose
from tasks.sandbox.program import CannotStart, Program
from tasks.stats.design import Arm
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system import file_trees, interrupt
from tasks.trial import Run, Trial, baseline

if TYPE_CHECKING:
    from PIL import Image

    from tasks.recording.camera import Film

FILE, GIF = "episode.json", "episode.gif"
REASON = 2000
"""Characters of a reason."""
WAITS = {"start_seconds": 45.0, "answer_seconds": 5.0, "total_seconds": 50.0}
"""Most time that a policy is given here, where its judge may give more."""
STRIP, GAP = 28, 4
"""Pixels of the line above the pictures, and between them."""
HOLD_MS = 1500
"""How long the end is shown before it begins again."""
FAULTS = (Misbehaved, NotAProgram, CannotStart, Refused, ValueError, OSError, ImportError)
"""Why there may be no episode: a policy, a machine or an environment that cannot play or draw."""


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
    episodes: tuple[PlayedEpisode, ...] = ()
    reason: str = ""
    """Why there is none; else empty."""


RECORDING = TypeAdapter(Recording)


def load(path: Path) -> Recording | None:
    """The recording in a campaign's directory; None without one."""
    try:
        return RECORDING.validate_json((path / FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def record(ledger: Ledger, champion: Trial | None, isolation: str, allow_unsandboxed: bool = False) -> None:
    """Record the champion beside the baseline, unless that was done.

    Environments without a control judge, and campaigns whose baseline stands, have nothing to record.

    Args:
        allow_unsandboxed: Whether an edited program may play without a sandbox.
    """
    first, before, gif = baseline(ledger.history()), load(ledger.path), ledger.path / GIF
    if judge_name(ledger.environment.judge) != "control" or champion is None or first is None or champion.number == 0:
        return
    if before and before.champion == champion.number and before.episodes and gif.is_file():
        return
    for old in ledger.path.glob(".recording-*"):  # left by one that was killed
        file_trees.remove(old)
    films: dict[Arm, Film] = {}
    played, who = list[PlayedEpisode](), ""
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=ledger.path, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            for arm, trial in dict[Arm, Trial]({"baseline": first, "champion": champion}).items():
                run, score, is_fresh = _player(ledger, arm, trial, champion)
                who, log = f"the {arm}, {run.dir}: ", folder / f"{arm}.txt"
                film = films[arm] = _film(ledger, trial, run, Isolation(choose(isolation), allow_unsandboxed), log)
                facts = (film.total, film.steps, film.cut, score, is_fresh)
                played.append(PlayedEpisode(arm, trial.number, run.dir, *facts))
            _draw(films, folder / GIF)
            made = Recording(champion.number, tuple(played))
        except FAULTS as wrong:
            made = Recording(champion.number, reason=f"{who}{wrong}"[:REASON])
        (ledger.path / FILE).unlink(missing_ok=True)  # it speaks of the picture, so it goes first and comes last
        gif.unlink(missing_ok=True)
        if made.episodes:
            (folder / GIF).rename(gif)
    (ledger.path / FILE).write_bytes(RECORDING.dump_json(made, indent=2) + b"\n")


def _player(ledger: Ledger, arm: Arm, trial: Trial, champion: Trial) -> tuple[Run, float | None, bool]:
    """The run whose checkpoint plays, its score, and whether it is of the certificate: a search picks lucky ones."""
    newest = next((one for one in reversed(ledger.certificates()) if not one.elsewhere), None)
    fresh = newest.runs if newest and newest.champion == champion.number else ()
    runs = [(one.run, one.score.value, True) for one in fresh if one.arm == arm]
    runs += [(run, score.value, False) for run, score in zip(trial.runs, trial.score.each, strict=False)]
    return next((one for one in runs if not _why_gone(ledger, one[0])), runs[-1])


def _why_gone(ledger: Ledger, run: Run) -> str | None:
    """Why a run's checkpoint cannot play any more; None if it can."""
    place = TrialDir(ledger.path / run.dir)
    if run.status != "finished":
        return "it did not finish"
    if not place.out.is_dir() or not place.workspace.is_dir():
        return "its files are not there any more"
    return changed_since(place, run)


def _film(ledger: Ledger, trial: Trial, run: Run, isolation: Isolation, log: Path) -> Film:
    """The film of an episode by the judge's settings; raises one of FAULTS."""
    environment, place = ledger.environment, TrialDir(ledger.path / run.dir)
    if gone := _why_gone(ledger, run):
        raise Misbehaved(gone)
    if not isolation.may_run(trial.proposal.edit):
        raise Misbehaved("its program is edited, and there is no sandbox (isolation none)")
    if run.isolation != isolation.level:
        file_trees.open_to_all(place.out)
    workspace.relocate(place, environment)
    assert isinstance(environment.judge, Control), "only its episodes are recorded"
    judge = _FilmedControl.of(environment.judge)
    exam = Exam(ledger.seed("recording", ledger.key(0)), folder=environment.folder, check=interrupt.check)
    with Program(
        workspace.fill(environment.judge.command(), {}), cwd=place.workspace, log=log,
        marker=f"{ledger.campaign.campaign_id}/recording", level=isolation.level, view=view(environment, place),
        limits=environment.limits, pipes=True,
    ) as policy:  # fmt: skip
        try:
            judge.score(PipedCandidate(policy, Path(os.devnull)), exam)
        except Misbehaved as wrong:
            policy.kill()  # its last words are read then
            raise Misbehaved(f"{wrong}\n{policy.tail()}".rstrip()) from wrong
    return judge._film


class _FilmedControl(Control):
    """The control judge with one episode, played before a camera."""

    _film: Film = PrivateAttr()

    @classmethod
    def of(cls, judge: Control) -> _FilmedControl:
        """The judge of an episode under its settings, of several sources the first."""
        source = judge.env_sources[0]
        waits = {key: min(getattr(judge, key), most) for key, most in WAITS.items()}
        return cls(
            id=judge.id, kwargs=source.kwargs, packages=judge.packages, max_episode_steps=judge.max_episode_steps,
            episodes=1, other_episodes=0, deterministic=judge.deterministic, **waits,
        )  # fmt: skip

    @contextmanager
    def _opened(self, sources: list[EnvSource], exam: Exam) -> Iterator[Lanes]:
        from tasks.recording.camera import FilmedSource, film  # gymnasium takes long to load

        with ForeignProcess(exam.folder, self.total_seconds, exam.check) as process:
            yield Lanes([process], [FilmedSource(**vars(sources[0]))])
            self._film = process.call(film)


def _draw(films: Mapping[Arm, Film], file: Path) -> None:
    """Write the GIF of all episodes side by side."""
    from PIL import Image

    frames = [_side_by_side(films, at) for at in range(max(len(film.pictures) for film in films.values()))]
    palette, first = frames[len(frames) // 2].quantize(128), next(iter(films.values()))
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [max(round(first.milliseconds / 10) * 10, 20)] * len(small)  # a GIF counts hundredths of a second
    times[-1] += HOLD_MS
    small[0].save(file, save_all=True, append_images=small[1:], duration=times, loop=0)


def _side_by_side(films: Mapping[Arm, Film], at: int) -> Image.Image:
    """One picture of all episodes at the same time, each below its name; one that is over shows its end."""
    from PIL import Image, ImageDraw, ImageFont

    width, height = next(iter(films.values())).pictures[0].size
    canvas = Image.new("RGB", (len(films) * (width + GAP) - GAP, height + STRIP), "white")
    pen, font = ImageDraw.Draw(canvas), ImageFont.load_default(17)
    for column, (name, film) in enumerate(films.items()):
        canvas.paste(film.pictures[min(at, len(film.pictures) - 1)], (column * (width + GAP), STRIP))
        pen.text((column * (width + GAP) + 6, 3), name, fill="black", font=font)
    return canvas
