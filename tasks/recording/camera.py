"""A camera before an environment, in the environment's process: a driver that fails ends that process alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gymnasium.wrappers import RecordEpisodeStatistics, RenderCollection, TimeLimit
from PIL import Image

from environments.judges._playing import EnvSource, Lanes

if TYPE_CHECKING:
    from environments.judges._playing import Env

SECONDS, MOST_STEPS = 10.0, 500
"""Of the environment's own time that are shown, and the most steps of them: each is kept as a picture for a while."""
PICTURES_PER_SECOND, UNKNOWN_FPS = 17, 30.0
WIDEST = 300
"""Pixels of a picture."""
WITHOUT_DISPLAY = {
    "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1", "MUJOCO_GL": "egl",
}  # fmt: skip


@dataclass
class Film:
    """What a camera has seen of an episode."""

    pictures: list[Image.Image]
    milliseconds: float
    """Between two pictures."""
    total: float
    """The return."""
    steps: int
    cut: bool
    """Whether enough was seen before the episode was over."""


class FilmedSource(EnvSource):
    """An environment that keeps pictures while it is played, and ends when enough is seen."""

    def make(self) -> Env:
        os.environ |= WITHOUT_DISPLAY
        env = EnvSource.make(replace(self, kwargs={**self.kwargs, "render_mode": "rgb_array"}))
        most = max(min(round(SECONDS * _fps(env)), MOST_STEPS), 1)
        return RecordEpisodeStatistics(TimeLimit(RenderCollection(env, pop_frames=False), most))


def film(lanes: Lanes) -> Film:
    """What was seen of the only lane of a process."""
    env = lanes.envs[0]
    assert isinstance(env, RecordEpisodeStatistics), "made by FilmedSource"
    frames, stride = env.get_wrapper_attr("frame_list"), max(round(_fps(env) / PICTURES_PER_SECOND), 1)
    pictures = [Image.fromarray(frame).convert("RGB") for frame in (*frames[:-1:stride], frames[-1])]
    for picture in pictures:
        picture.thumbnail((WIDEST, WIDEST))
    steps = int(env.length_queue[-1])
    is_cut = steps == env.get_wrapper_attr("_max_episode_steps")
    return Film(pictures, 1000 * stride / _fps(env), float(env.return_queue[-1]), steps, is_cut)


def _fps(env: Env) -> float:
    return float(env.metadata.get("render_fps") or UNKNOWN_FPS)
