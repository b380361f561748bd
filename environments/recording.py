"""Recording: one episode of each of two policies, drawn side by side as a GIF. A program in a sandbox of its own.

The engine starts it beside the policies, which are programs in their sandboxes, and passes messages between them
(tasks/recording/stage.py). It steps and draws the environment. Everything else is the judge's: the protocol, the checks
of the answers, the limits on time. What is measured here is no score, and no proposer sees it.

It is spoken to in lines of JSON, one for each that it says:

    <- {"play": {...}, "name": "baseline", "seed": 7}         the judge's fields; the policy is started
    -> {"ask": "receive", "size": 8, "seconds": 10.0}         `Candidate.receive` of the policy, as every method of it
    <- {"told": "AAAAAAAAAAA="}                               in base64; or {"misbehaved": reason}
    -> {"played": {"total": -154.2, "steps": 210, ...}}       or {"failed": reason}, and nothing more
    <- {"draw": "FOLDER"}                                     after all were played
    -> {"drawn": {"bytes": 210344, ...}}                      FOLDER holds episode.gif and episode.png
"""

from __future__ import annotations

import base64
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from pydantic import PrivateAttr

from environments.judges import Exam, Misbehaved
from environments.judges._lanes import Lanes, PlayedLanes
from environments.judges._making import EnvSource
from environments.judges.control import Control

if TYPE_CHECKING:
    from PIL.Image import Image

    from environments.judges._making import Env

SECONDS = 10.0
"""Of the environment's own time that are shown."""
MOST_STEPS = 1000
MOST_SECONDS = 20.0
"""On the clock: a slow environment is cut there."""
PICTURES_PER_SECOND = 17
WIDEST = 300
"""Pixels of a picture, in width and height."""
NARROWEST = 180
"""Pixels of its column, which has to hold the words above it."""
STRIP, GAP, MARGIN = 28, 4, 6
"""Pixels of the line above the pictures, between them, and around a text."""
FONT = 17
"""Pixels of a letter; a phone shows the picture at half its size."""
HOLD_SECONDS = 1.5
"""How long the end is shown before it begins again."""
COLORS = 128
SAMPLED = 12
"""Pictures whose colours make the palette."""
INK, PAPER, ACCENT = (28, 33, 40), (255, 255, 255), (0, 114, 178)
UNKNOWN_FPS = 30.0

Ask = Callable[..., bytes]
"""A method of the policy's `Candidate` by name, with its arguments."""


class CannotRecord(Exception):
    """The episode cannot be drawn; the message is the reason."""


@dataclass
class Film:
    """The pictures of one episode, with the return so far at each."""

    name: str
    pictures: list[Image] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    fps: float = UNKNOWN_FPS
    total: float = 0.0
    steps: int = 0
    cut: bool = False
    """Whether the episode was longer."""
    ends: float = math.inf
    """When it is cut, by the monotonic clock."""

    @property
    def stride(self) -> int:
        """Steps from one picture to the next."""
        return max(round(self.fps / PICTURES_PER_SECOND), 1)

    @property
    def most_steps(self) -> int:
        return max(min(round(SECONDS * self.fps), MOST_STEPS), 1)

    def take(self, picture: object) -> None:
        self.pictures.append(scaled(picture))
        self.totals.append(self.total)

    def told(self) -> dict[str, object]:
        seconds = round(self.steps / self.fps, 2)
        return {"total": self.total, "steps": self.steps, "seconds": seconds, "cut": self.cut}


class Camera:
    """A gymnasium environment that keeps pictures while it is played, and ends when enough is seen."""

    def __init__(self, env: Env, film: Film) -> None:
        self._env, self._film = env, film
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.close = env.close
        fps = env.metadata.get("render_fps")
        if isinstance(fps, int | float) and math.isfinite(fps) and fps > 0:
            film.fps = float(fps)

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        started = self._env.reset(seed=seed)
        self._film.ends = time.monotonic() + MOST_SECONDS
        self._film.take(self._first())
        return started

    def _first(self) -> Any:
        try:
            return self._env.render()
        except Exception as error:  # whatever a driver raises; str() fails for some errors of OpenGL
            words = traceback.format_exception_only(error)[-1].strip()
            raise CannotRecord(f"pictures cannot be drawn here ({words})") from error

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self._env.step(action)
        film = self._film
        film.steps += 1
        film.total += float(reward)
        over = terminated or truncated
        film.cut = not over and (film.steps >= film.most_steps or time.monotonic() > film.ends)
        if over or film.cut or film.steps % film.stride == 0:
            film.take(self._env.render())
        return seen, reward, terminated, truncated or film.cut, info


@dataclass(frozen=True)
class FilmedSource(EnvSource):
    """What makes an environment with a camera."""

    film: Film

    def make(self) -> Env:
        env = super().make()
        modes = env.metadata.get("render_modes") or []
        if "rgb_array" not in modes:
            env.close()
            raise CannotRecord(f"{self.env_id} draws no pictures (its render_modes are {modes}, without rgb_array)")
        return cast("Env", Camera(env, self.film))


class RecordedControl(Control):
    """The control judge with one episode, of which pictures are kept."""

    _film: Film = PrivateAttr()

    @classmethod
    def of(cls, fields: dict[str, Any], film: Film) -> RecordedControl:
        judge = cls.model_validate(fields)
        judge._film = film
        return judge

    def _opened(self, sources: list[EnvSource], exam: Exam) -> AbstractContextManager[Lanes]:
        """In this process, which is one for somebody's code anyway, and has the pictures then."""
        return nullcontext(PlayedLanes([source.make() for source in sources], range(len(sources))))

    def _sources(self, plays: list[int]) -> list[EnvSource]:
        return [FilmedSource(**vars(source), film=self._film) for source in super()._sources(plays)]


class Remote:
    """A policy that the engine has started (see `environments.judges.Candidate`)."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.result = Path(os.devnull)

    def send(self, data: bytes, seconds: float) -> None:
        self._ask("send", data=base64.b64encode(data).decode(), seconds=seconds)

    def receive(self, size: int, seconds: float) -> bytes:
        return self._ask("receive", size=size, seconds=seconds)

    def receive_line(self, limit: int, seconds: float) -> bytes:
        return self._ask("receive_line", limit=limit, seconds=seconds)

    def wait(self, seconds: float) -> int:
        raise AssertionError("a control judge waits for no end")


def scaled(picture: object) -> Image:
    """What an environment has drawn, as a small picture.

    Raises:
        CannotRecord: it is no picture.
    """
    import numpy as np
    from PIL import Image

    if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3 or 0 in picture.shape:
        shape = f" of shape {picture.shape}" if isinstance(picture, np.ndarray) else ""
        raise CannotRecord(f"its render() returned {type(picture).__name__}{shape} where a picture in RGB was due")
    image = Image.fromarray(np.ascontiguousarray(picture, dtype=np.uint8))
    image.thumbnail((WIDEST, WIDEST))
    return image


def draw(films: list[Film], folder: Path) -> dict[str, object]:
    """Write the GIF, and its last picture as a PNG; their size and length."""
    from PIL import Image

    many = max(len(film.pictures) for film in films)
    frames = [side_by_side(films, at) for at in range(many)]
    sample = frames[:: max(many // SAMPLED, 1)] + frames[-1:]
    mosaic = Image.new("RGB", (frames[0].width, frames[0].height * len(sample)))
    for at, frame in enumerate(sample):
        mosaic.paste(frame, (0, at * frame.height))
    palette = mosaic.quantize(COLORS)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    step = max(round(1000 * films[0].stride / films[0].fps / 10) * 10, 20)  # a GIF counts hundredths of a second
    times = [step] * (many - 1) + [step + round(1000 * HOLD_SECONDS)]
    gif, png = folder / "episode.gif", folder / "episode.png"
    small[0].save(gif, save_all=True, append_images=small[1:], duration=times, loop=0, disposal=1)
    small[-1].save(png, optimize=True)
    return {"width": frames[0].width, "height": frames[0].height, "seconds": round(sum(times) / 1000, 2)}


def side_by_side(films: list[Film], at: int) -> Image:
    """One picture of all episodes at the same time; one that is over shows its end."""
    from PIL import Image, ImageDraw, ImageFont

    columns = [max(film.pictures[0].width, NARROWEST) for film in films]
    width = sum(columns) + GAP * (len(films) - 1)
    height = max(film.pictures[0].height for film in films)
    canvas = Image.new("RGB", (width, height + STRIP), PAPER)
    pen, font, left = ImageDraw.Draw(canvas), ImageFont.load_default(FONT), 0
    for film, column in zip(films, columns, strict=True):
        own = min(at, len(film.pictures) - 1)
        picture, color = film.pictures[own], ACCENT if film is films[-1] else INK
        canvas.paste(picture, (left, STRIP))
        end = "" if own < len(film.pictures) - 1 else " (goes on)" if film.cut else " (end)"
        right = f"{shown(film.totals[own])}{end}"
        pen.text((left + MARGIN, MARGIN // 2), film.name, fill=color, font=font)
        pen.text((left + column - MARGIN, MARGIN // 2), right, fill=color, font=font, anchor="ra")
        left += column + GAP
    return canvas


def shown(total: float) -> str:
    """A return in a few characters, of a length that changes little from picture to picture."""
    return f"{total:.4g}" if abs(total) >= 1e5 else f"{total:.1f}" if abs(total) >= 10 else f"{total:.2f}"


def main() -> None:
    """Play and draw what is asked for, until the engine ends it."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to the log
    os.environ |= {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
    os.environ["MUJOCO_GL"] = "egl"  # draws without a display
    films: list[Film] = []
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "draw" in asked:
                say(out, {"drawn": draw(films, Path(asked["draw"]))})
                continue
            film = Film(asked["name"])
            judge = RecordedControl.of(asked["play"], film)
            judge.score(Remote(lambda name, **more: ask(out, name, more)), Exam(asked["seed"]))
            films.append(film)
            say(out, {"played": film.told()})
        except (CannotRecord, Misbehaved, ValueError, ImportError) as wrong:
            say(out, {"failed": str(wrong)})


def ask(out: TextIO, name: str, arguments: dict[str, object]) -> bytes:
    """What a method of the policy's `Candidate` returns; Misbehaved as that raises it."""
    say(out, {"ask": name, **arguments})
    answer = json.loads(sys.stdin.readline())
    if "misbehaved" in answer:
        raise Misbehaved(answer["misbehaved"])
    return base64.b64decode(answer["told"])


def say(out: TextIO, message: dict[str, object]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()
