"""The process that plays an episode of both policies and draws them side by side; a driver that fails ends it alone.

The policies are programs in sandboxes, started as they are when they are judged, and the judge's own protocol, checks
and limits hold. What is measured here is no score, and no proposer sees it.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from pydantic import PrivateAttr

from environments.judges import Exam, Misbehaved
from environments.judges._lanes import Lanes, PlayedLanes
from environments.judges._making import EnvSource
from environments.judges.control import Control
from tasks.certifying.group_design import Arm
from tasks.evaluate import PipedCandidate, view
from tasks.recording.episode import (
    GIF,
    REASON,
    RECORDING,
    STILL,
    CannotRecord,
    PlayedEpisode,
    Recording,
    Side,
    sides_of,
    why_gone,
)  # fmt: skip
from tasks.sandbox.child_environment import NotAProgram
from tasks.sandbox.isolation import Isolation
from tasks.sandbox.program import CannotStart, Program
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system import file_trees

SECONDS, MOST_STEPS = 10.0, 1000
"""Of the environment's own time that are shown, and the most steps of them."""
MOST_SECONDS = 20.0
"""On the clock: a slow environment is cut there."""
WAITS = {"start_seconds": 45.0, "answer_seconds": 5.0, "total_seconds": 50.0}
"""Most time that a policy is given here, where its judge may give more."""
PICTURES_PER_SECOND, UNKNOWN_FPS = 17, 30.0
WIDEST, NARROWEST, STRIP, GAP = 300, 180, 28, 4
"""Pixels of a picture, at least of its column, of the line above the pictures, and between them."""
HOLD_MS = 1500
"""How long the end is shown before it begins again."""
INK, ACCENT = (28, 33, 40), (0, 114, 178)
PR_SET_PDEATHSIG = 1


class Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that keeps pictures while it is played, and ends when enough is seen."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        if "rgb_array" not in (env.metadata.get("render_modes") or []):
            raise CannotRecord("the environment draws no pictures: rgb_array is not among its render_modes")
        fps = env.metadata.get("render_fps")
        self.fps = float(fps) if isinstance(fps, int | float) and 0 < fps < math.inf else UNKNOWN_FPS
        self.stride = max(round(self.fps / PICTURES_PER_SECOND), 1)
        self.pictures: list[Image.Image] = []
        self.totals: list[float] = []
        self.total, self.steps, self.cut, self.ends = 0.0, 0, False, math.inf

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        started = self.env.reset(**options)
        self.ends = time.monotonic() + MOST_SECONDS
        self._take()
        return started

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        self.steps, self.total = self.steps + 1, self.total + float(reward)
        over, most = terminated or truncated, max(min(round(SECONDS * self.fps), MOST_STEPS), 1)
        self.cut = not over and (self.steps >= most or time.monotonic() > self.ends)
        if over or self.cut or self.steps % self.stride == 0:
            self._take()
        return seen, reward, terminated, truncated or self.cut, info

    def _take(self) -> None:
        try:
            drawn = np.ascontiguousarray(self.env.render(), dtype=np.uint8)
            if drawn.ndim != 3 or drawn.shape[2] != 3 or not drawn.size:
                raise ValueError(f"an array of shape {drawn.shape} is no picture in RGB")
            picture = Image.fromarray(drawn)
            picture.thumbnail((WIDEST, WIDEST))
        except Exception as error:  # whatever a driver raises, or an environment that returns no picture
            words = traceback.format_exception_only(error)[-1].strip()  # str() fails for some errors of OpenGL
            raise CannotRecord(f"pictures cannot be drawn here ({words})") from error
        self.pictures.append(picture)
        self.totals.append(self.total)


def film(ledger: Ledger, side: Side, isolation: Isolation, folder: Path) -> Camera:
    """Let one side play one episode, by the judge's settings; of several sources under the first."""
    environment, place = ledger.environment, TrialDir(ledger.path / side.run.dir)
    if gone := why_gone(ledger, side.run):
        raise Misbehaved(gone)
    if not isolation.may_run(side.trial.proposal.edit):
        raise Misbehaved("its program is edited, and there is no sandbox (isolation none)")
    if side.run.isolation != isolation.level:
        file_trees.open_to_all(place.out)
    workspace.relocate(place, environment)
    assert isinstance(environment.judge, Control), "only its episodes are recorded"
    sys.path.append(str(environment.folder))  # for modules of its own, as they are found under judgement
    judge = FilmedControl.of(environment.judge)
    with Program(
        workspace.fill(environment.judge.command(), {}), cwd=place.workspace, log=folder / f"{side.name}.txt",
        marker=f"{ledger.campaign.campaign_id}/recording", level=isolation.level, view=view(environment, place),
        limits=environment.limits, pipes=True,
    ) as policy:  # fmt: skip
        try:
            judge.score(PipedCandidate(policy, Path(os.devnull)), Exam(ledger.seed("recording", ledger.key(0))))
        except Misbehaved as wrong:
            policy.kill()  # its last words are read then
            raise Misbehaved(f"{wrong}\n{policy.tail()}".rstrip()) from wrong
    return judge.camera


class FilmedControl(Control):
    """The control judge with one episode, played in this process before a camera."""

    _camera: Camera = PrivateAttr()

    @classmethod
    def of(cls, judge: Control) -> FilmedControl:
        """The judge of an episode under its settings, of several sources the first."""
        source = judge.env_sources[0]
        waits = {key: min(getattr(judge, key), most) for key, most in WAITS.items()}
        made = cls(id=judge.id, episodes=1, other_episodes=0, deterministic=judge.deterministic, **waits)
        made._camera = Camera(replace(source, kwargs={**source.kwargs, "render_mode": "rgb_array"}).make())
        return made

    @property
    def camera(self) -> Camera:
        return self._camera

    def _opened(self, sources: list[EnvSource], exam: Exam) -> AbstractContextManager[Lanes]:
        return nullcontext(PlayedLanes([self._camera], [0]))


def draw(films: Mapping[Arm, Camera], folder: Path) -> None:
    """Write the GIF of all episodes side by side, and its last picture."""
    frames = [_side_by_side(films, at) for at in range(max(len(camera.pictures) for camera in films.values()))]
    palette, first = frames[len(frames) // 2].quantize(128), next(iter(films.values()))
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [max(round(100 * first.stride / first.fps) * 10, 20)] * len(small)  # a GIF counts hundredths of a second
    times[-1] += HOLD_MS
    small[-1].save(folder / STILL, optimize=True)
    small[0].save(folder / GIF, save_all=True, append_images=small[1:], duration=times, loop=0)


def _side_by_side(films: Mapping[Arm, Camera], at: int) -> Image.Image:
    """One picture of all episodes at the same time; one that is over shows its end."""
    columns = [max(camera.pictures[0].width, NARROWEST) for camera in films.values()]
    height = max(camera.pictures[0].height for camera in films.values())
    canvas = Image.new("RGB", (sum(columns) + GAP * (len(films) - 1), height + STRIP), "white")
    pen, font, left = ImageDraw.Draw(canvas), ImageFont.load_default(17), 0
    for (name, camera), column in zip(films.items(), columns, strict=True):
        own = min(at, len(camera.pictures) - 1)
        canvas.paste(camera.pictures[own], (left, STRIP))
        end = "" if own < len(camera.pictures) - 1 else " (goes on)" if camera.cut else " (end)"
        pen.text((left + 6, 3), name, fill=ACCENT if name == "champion" else INK, font=font)
        pen.text((left + column - 6, 3), f"{camera.totals[own]:.4g}{end}", fill=INK, font=font, anchor="ra")
        left += column + GAP
    return canvas


def main() -> None:
    """Record what the argument asks for in JSON, and say on standard output what was played or why nothing was."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # with the engine, and with it the policies
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to the log
    os.environ |= {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
    os.environ["MUJOCO_GL"] = "egl"  # draws without a display
    asked = json.loads(sys.argv[1])
    ledger, isolation = Ledger.open(asked["campaign"]), Isolation(asked["level"], asked["allow_unsandboxed"])
    films, played, reason, sides = {}, [], "", sides_of(ledger, asked["champion"])
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=ledger.path, ignore_cleanup_errors=True) as folder:
        for side in sides:
            try:
                films[side.name] = camera = film(ledger, side, isolation, Path(folder))
            except (CannotRecord, Misbehaved, NotAProgram, CannotStart, ValueError, OSError) as wrong:
                reason = f"the {side.name}, {side.run.dir}: {wrong}"[:REASON]
                break
            facts = (camera.total, camera.steps, camera.cut, side.score, side.is_fresh)
            played.append(PlayedEpisode(side.name, side.trial.number, side.run.dir, *facts))
        else:
            draw(films, Path(asked["folder"]))
    made = Recording(asked["champion"], tuple(side.run.dir for side in sides), () if reason else tuple(played), reason)
    out.write(RECORDING.dump_json(made).decode())


if __name__ == "__main__":
    main()
