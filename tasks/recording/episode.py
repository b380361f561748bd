"""The episode of a campaign: the champion's policy beside the baseline's, in one GIF.

    record(ledger, champion, "auto")     # writes episode.gif and episode.json

Both play the same episode, from a seed that no judgement uses, as programs in their sandboxes under the judge's own
protocol and limits; the environment is in a process of its own, with a camera before it.

It is no measurement, and no failure here is a fault of the campaign: it becomes a reason.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from environments.judges import Exam, Misbehaved
from environments.judges._playing import EnvSource
from environments.judges._process import ForeignProcess
from environments.judges.control import Control
from environments.plugins import Refused, name_of
from tasks.evaluate import judge_run
from tasks.sandbox.isolation import Isolation, choose
from tasks.sandbox.program import CannotStart
from tasks.stats.design import Arm
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.trial import Run, Trial, baseline

if TYPE_CHECKING:
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
FAULTS = (Misbehaved, CannotStart, Refused, ValueError, OSError, ImportError)
"""Why there may be no episode: a policy, a machine or an environment that cannot play or draw."""


def load(path: Path) -> dict[str, Any] | None:
    """The recording in a campaign's directory; None without one.

    {champion, reason, episodes: [{name, trial, run, total, steps, cut}]}: the champion's trial, why there is no picture
    (else empty), and of each policy in it the run whose checkpoint played, the undiscounted return of what was played,
    and whether the episode was longer.
    """
    try:
        return dict(json.loads((path / FILE).read_bytes()))
    except (FileNotFoundError, ValueError):
        return None


def record(ledger: Ledger, champion: Trial | None, isolation: str, allow_unsandboxed: bool = False) -> None:
    """Record the champion beside the baseline, unless that was done.

    Environments without a control judge, and campaigns whose baseline stands, have nothing to record.

    Args:
        allow_unsandboxed: Whether an edited program may play without a sandbox.
    """
    first, before, gif = baseline(ledger.history()), load(ledger.path), ledger.path / GIF
    if name_of(ledger.environment.judge) != "control" or champion is None or first is None or champion.number == 0:
        return
    if before and before["champion"] == champion.number and gif.is_file():
        return
    for old in ledger.path.glob(".recording-*"):  # left by one that was killed
        file_trees.remove(old)
    films: dict[Arm, Film] = {}
    made: dict[str, Any] = {"champion": champion.number, "reason": "", "episodes": []}
    who = ""
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=ledger.path, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            confined = Isolation(choose(isolation), allow_unsandboxed)
            for arm, trial in dict[Arm, Trial]({"baseline": first, "champion": champion}).items():
                run = next((run for run in trial.runs if run.status == "finished"), trial.runs[-1])
                who = f"the {arm}, {run.dir}: "
                if not confined.may_run(trial.proposal.edit):
                    raise Misbehaved("its program is edited, and there is no sandbox (isolation none)")
                film = films[arm] = _film(ledger, run, confined, folder / arm)
                seen = {"total": film.total, "steps": film.steps, "cut": film.cut}
                made["episodes"].append({"name": arm, "trial": trial.number, "run": run.dir, **seen})
            _draw(films, folder / GIF)
        except FAULTS as wrong:
            made |= {"reason": f"{who}{wrong}"[:REASON], "episodes": []}
        (ledger.path / FILE).unlink(missing_ok=True)  # it speaks of the picture, so it goes first and comes last
        gif.unlink(missing_ok=True)
        if not made["reason"]:
            (folder / GIF).rename(gif)
    (ledger.path / FILE).write_text(json.dumps(made, indent=2) + "\n")


def _film(ledger: Ledger, run: Run, isolation: Isolation, scratch: Path) -> Film:
    """The film of an episode by the judge's settings, of a copy of the run in `scratch`; raises one of FAULTS."""
    assert isinstance(ledger.environment.judge, Control), "only its episodes are recorded"
    judge, marker = _FilmedControl.of(ledger.environment.judge), f"{ledger.campaign.campaign_id}/recording"
    for folder in ("workspace", "out"):
        shutil.copytree(ledger.path / run.dir / folder, scratch / folder, symlinks=True)
    environment, seed = ledger.environment.model_copy(update={"judge": judge}), ledger.seed("recording", ledger.key(0))
    score = judge_run(marker, environment, isolation, TrialDir(scratch), run, seed)
    if judge._film is None:
        raise Misbehaved(score.error or "it was not played")
    return judge._film


class _FilmedControl(Control):
    """The control judge with one episode, played before a camera."""

    _film: Film | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, judge: Control) -> _FilmedControl:
        """The judge of an episode under its settings, of several sources the first."""
        waits = {key: min(getattr(judge, key), most) for key, most in WAITS.items()}
        one = {"kwargs": judge.env_sources[0].kwargs, "sources": {}, "episodes": 1, "other_episodes": 0}
        return cls.model_validate(judge.model_dump() | one | waits)

    @contextmanager
    def _opened(self, sources: list[EnvSource], exam: Exam) -> Iterator[ForeignProcess]:
        from tasks.recording.camera import FilmedSource, film  # gymnasium takes long to load

        with super()._opened([FilmedSource(**vars(sources[0]))], exam) as process:
            yield process
            self._film = process.call(film)


def _draw(films: Mapping[Arm, Film], file: Path) -> None:
    """Write the GIF of all episodes side by side, each below its name; one that is over shows its end."""
    from PIL import Image, ImageDraw, ImageFont

    first, font = next(iter(films.values())), ImageFont.load_default(17)
    width, height = first.pictures[0].size
    frames = []
    for at in range(max(len(film.pictures) for film in films.values())):
        frame = Image.new("RGB", (len(films) * (width + GAP) - GAP, height + STRIP), "white")
        for column, (name, film) in enumerate(films.items()):
            left = column * (width + GAP)
            frame.paste(film.pictures[min(at, len(film.pictures) - 1)], (left, STRIP))
            ImageDraw.Draw(frame).text((left + 6, 3), name, fill="black", font=font)
        frames.append(frame)
    palette = frames[len(frames) // 2].quantize(128)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [max(round(first.milliseconds / 10) * 10, 20)] * len(small)  # a GIF counts hundredths of a second
    times[-1] += HOLD_MS
    small[0].save(file, save_all=True, append_images=small[1:], duration=times, loop=0)
