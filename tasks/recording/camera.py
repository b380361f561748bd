"""A camera before an environment, in the environment's process: a driver that fails ends that process alone."""

from __future__ import annotations

import math
import os
import time
import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from PIL import Image

from environments.judges import _playing
from environments.judges._playing import EnvSource

if TYPE_CHECKING:
    from environments.judges._playing import Env

SECONDS, MOST_STEPS, MOST_SECONDS = 10.0, 1000, 20.0
"""Of the environment's own time that are shown, the most steps of them, and seconds on the clock."""
PICTURES_PER_SECOND, UNKNOWN_FPS = 17, 30.0
WIDEST = 300
"""Pixels of a picture."""
WITHOUT_DISPLAY = {
    "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1", "MUJOCO_GL": "egl",
}  # fmt: skip


@dataclass
class Film:
    """What a camera has seen of an episode."""

    milliseconds: float
    """Between two pictures."""
    pictures: list[Image.Image] = field(default_factory=list)
    total: float = 0.0
    """The return."""
    steps: int = 0
    cut: bool = False
    """Whether the episode was longer."""


class Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that keeps pictures while it is played, and ends when enough is seen."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        fps = float(env.metadata.get("render_fps") or UNKNOWN_FPS)
        self.stride = max(round(fps / PICTURES_PER_SECOND), 1)
        self.most = max(min(round(SECONDS * fps), MOST_STEPS), 1)
        self.film, self.ends = Film(1000 * self.stride / fps), math.inf

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        started = self.env.reset(**options)
        self.ends = time.monotonic() + MOST_SECONDS
        self._take()
        return started

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        film, over = self.film, terminated or truncated
        film.steps, film.total = film.steps + 1, film.total + float(reward)
        film.cut = not over and (film.steps >= self.most or time.monotonic() > self.ends)
        if over or film.cut or film.steps % self.stride == 0:
            self._take()
        return seen, reward, terminated, truncated or film.cut, info

    def _take(self) -> None:
        try:
            picture = Image.fromarray(np.asarray(self.env.render(), dtype=np.uint8)).convert("RGB")
            picture.thumbnail((WIDEST, WIDEST))
        except Exception as error:  # whatever a driver raises, or an environment that returns no picture
            words = traceback.format_exception_only(error)[-1].strip()  # str() fails for some errors of OpenGL
            raise ValueError(f"pictures cannot be drawn here ({words})") from error
        self.film.pictures.append(picture)


class FilmedSource(EnvSource):
    """An environment with a camera before it."""

    def make(self) -> Env:
        os.environ |= WITHOUT_DISPLAY
        return Camera(EnvSource.make(replace(self, kwargs={**self.kwargs, "render_mode": "rgb_array"})))


def film() -> Film:
    """What was seen of the only lane of this process."""
    camera = _playing.played.envs[0]
    assert isinstance(camera, Camera), "made by FilmedSource"
    return camera.film
