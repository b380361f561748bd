"""Recording: one episode of a policy with pictures, and two of them side by side as a GIF. A program in a sandbox.

The engine starts it once for the baseline and once for the champion, and connects its standard input and output with
those of the policy, which is a program in a sandbox of its own (tasks/recording/episode.py). It steps and draws the
environment. Everything else is the judge's: the protocol, the checks of the answers, the limits on time. What is
measured here is no score, and no proposer sees it.

It is asked in its arguments, and answers in a folder: NAME.json has what was played, or the reason why not, and
NAME.npz the pictures; after the champion, episode.gif and its last picture, episode.png, are there.
"""

from __future__ import annotations

import json
import math
import os
import select
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from environments.judges import Exam, Misbehaved
from environments.judges._making import make
from environments.judges.control import Control

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


class CannotRecord(Exception):
    """The episode cannot be drawn; the message is the reason."""


class Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that keeps pictures while it is played, and ends when enough is seen."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        if "rgb_array" not in (env.metadata.get("render_modes") or []):
            raise CannotRecord("the environment draws no pictures: rgb_array is not among its render_modes")
        fps = env.metadata.get("render_fps")
        self.fps = float(fps) if isinstance(fps, int | float) and 0 < fps < math.inf else UNKNOWN_FPS
        self.stride = max(round(self.fps / PICTURES_PER_SECOND), 1)
        self.pictures: list[Any] = []
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
        self.pictures.append(np.asarray(picture))
        self.totals.append(self.total)


class Pipe:
    """The policy at the other end of standard input and output (see `environments.judges.Candidate`)."""

    def __init__(self, out: int) -> None:
        self.result = Path(os.devnull)
        self._out, self._held = out, bytearray()

    def send(self, data: bytes, seconds: float) -> None:
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except BrokenPipeError:
            raise Misbehaved("ended") from None

    def receive(self, size: int, seconds: float) -> bytes:
        ends = time.monotonic() + seconds
        while len(self._held) < size:
            self._more(ends, seconds)
        return self._taken(size)

    def receive_line(self, limit: int, seconds: float) -> bytes:
        ends = time.monotonic() + seconds
        while (end := self._held.find(b"\n")) < 0:
            if len(self._held) > limit:
                raise Misbehaved(f"answered with more than {limit} bytes where one line was due")
            self._more(ends, seconds)
        return self._taken(end + 1).rstrip(b"\r\n")

    def wait(self, seconds: float) -> int:
        raise AssertionError("a control judge waits for no end")

    def _more(self, ends: float, seconds: float) -> None:
        if not select.select([0], [], [], max(ends - time.monotonic(), 0))[0]:
            raise Misbehaved(f"did not answer within {seconds:g} s")
        if not (chunk := os.read(0, 2**16)):
            raise Misbehaved("ended")
        self._held += chunk

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken


def play(fields: dict[str, Any], seed: int, policy: Pipe) -> Camera:
    """Play one episode by the judge of these fields; of several sources it is played under the first."""
    own: dict[str, Any] = next(iter(fields.get("sources", {}).values()), {"kwargs": {}})["kwargs"]
    kwargs = {**fields.get("kwargs", {}), **own, "render_mode": "rgb_array"}
    camera = Camera(make(fields["id"], fields.get("max_episode_steps"), kwargs, "[control]"))
    gymnasium.register("Filmed-v0", lambda **_: camera)
    waits = {key: min(fields.get(key, most), most) for key, most in WAITS.items()}
    once = {"id": "Filmed-v0", "episodes": 1, "other_episodes": 0, "deterministic": fields.get("deterministic", True)}
    Control.model_validate(once | waits).score(policy, Exam(seed))
    return camera


def draw(names: list[str], folder: Path) -> None:
    """Write the GIF of all episodes side by side, and its last picture."""
    films = [dict(np.load(folder / f"{name}.npz")) for name in names]
    frames = [_side_by_side(names, films, at) for at in range(max(len(film["pictures"]) for film in films))]
    palette = frames[len(frames) // 2].quantize(128)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [max(round(100 / float(films[0]["rate"])) * 10, 20)] * len(small)  # a GIF counts hundredths of a second
    times[-1] += HOLD_MS
    small[0].save(folder / "episode.gif", save_all=True, append_images=small[1:], duration=times, loop=0)
    small[-1].save(folder / "episode.png", optimize=True)


def _side_by_side(names: list[str], films: list[dict[str, Any]], at: int) -> Image.Image:
    """One picture of all episodes at the same time; one that is over shows its end."""
    columns = [max(film["pictures"].shape[2], NARROWEST) for film in films]
    height = max(film["pictures"].shape[1] for film in films)
    canvas = Image.new("RGB", (sum(columns) + GAP * (len(films) - 1), height + STRIP), "white")
    pen, font, left = ImageDraw.Draw(canvas), ImageFont.load_default(17), 0
    for name, film, column in zip(names, films, columns, strict=True):
        own = min(at, len(film["pictures"]) - 1)
        canvas.paste(Image.fromarray(film["pictures"][own]), (left, STRIP))
        end = "" if own < len(film["pictures"]) - 1 else " (goes on)" if film["cut"] else " (end)"
        pen.text((left + 6, 3), name, fill=ACCENT if name == names[-1] else INK, font=font)
        words = f"{film['totals'][own]:.4g}{end}"
        pen.text((left + column - 6, 3), words, fill=INK, font=font, anchor="ra")
        left += column + GAP
    return canvas


def main() -> None:
    """Play one episode, as the last argument asks for in JSON, and after the last of several draw them all."""
    out = os.dup(1)
    os.dup2(2, 1)  # libraries print to the log
    os.environ |= {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
    os.environ["MUJOCO_GL"] = "egl"  # draws without a display
    asked = json.loads(sys.argv[-1])
    folder, names = Path(asked["folder"]), asked["names"]
    try:
        camera = play(asked["judge"], asked["seed"], Pipe(out))
        rate = camera.fps / camera.stride
        film = {"pictures": camera.pictures, "totals": camera.totals, "cut": camera.cut, "rate": rate}
        np.savez(folder / f"{names[-1]}.npz", allow_pickle=False, **{key: np.array(film[key]) for key in film})
        if asked["draws"]:
            draw(names, folder)
        answer: dict[str, Any] = {"total": camera.total, "steps": camera.steps, "cut": camera.cut}
    except (CannotRecord, Misbehaved, ValueError, ImportError, OSError) as wrong:
        answer = {"reason": str(wrong)}
    (folder / f"{names[-1]}.json").write_text(json.dumps(answer))
