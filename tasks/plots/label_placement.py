"""Where labels go: beside what they name, on nothing that is drawn, not on each other. Plain geometry, in pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Spot = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in pixels."""
Boxes = NDArray[np.float64]
"""Boxes in an array, shape (boxes, 4)."""


class Room:
    """Where in a frame there is room for labels: not on what is drawn, not on each other, not on a leader."""

    def __init__(self, taken: Boxes, frame: Box) -> None:
        self.taken, self.frame = taken, frame
        self.labels = np.empty((0, 4))

    def take(self, anchor: Spot, size: Spot, far: float) -> Box | None:
        """The free box of `size` nearest to `anchor`, within `far` of it; None if there is none. All in pixels."""
        boxes = _around(anchor, size, far)
        inside = (boxes[:, :2] >= self.frame[:2]).all(1) & (boxes[:, 2:] <= self.frame[2:]).all(1)
        free = boxes[inside & ~_overlap(boxes, np.vstack([self.taken, self.labels]), gap=4.0).any(1)]
        for candidate in free:
            box: Box = tuple(map(float, candidate))  # type: ignore[assignment]
            leader = along(anchor, edge_of(box, anchor))
            if not _overlap(leader, self.labels, gap=1.0).any():
                self.labels = np.vstack([self.labels, box])
                self.taken = np.vstack([self.taken, leader])
                return box
        return None


def _around(anchor: Spot, size: Spot, far: float) -> Boxes:
    """Boxes of `size` around a point, the best first: near, and up rather than down, left rather than right."""
    # Worse trials lie below, and the champion's line goes on to the right.
    angles = np.deg2rad([110, 90, 70, 140, 40, 165, 15, 250, 270, 290, 220, 320, 195, 345])
    reaches = np.array([r for r in (14.0, 20, 28, 38, 50, 64, 80, 100, 130) if r <= far])
    reach, angle = (grid.ravel() for grid in np.meshgrid(reaches, angles, indexing="ij"))
    centre = np.array(anchor)[:, None] + np.stack([np.cos(angle), np.sin(angle)]) * (
        reach + np.array(size)[:, None] / 2
    )
    half = np.array(size)[:, None] / 2
    return np.vstack([centre - half, centre + half]).T


def _overlap(boxes: Boxes, others: Boxes, gap: float) -> NDArray[np.bool_]:
    """Whether boxes come nearer than `gap` to others; shape (boxes, others)."""
    apart = (boxes[:, None, :2] >= others[None, :, 2:] + gap) | (
        boxes[:, None, 2:] <= others[None, :, :2] - gap
    )
    return np.logical_not(apart.any(2))


def edge_of(box: Box, point: Spot) -> Spot:
    """Where a leader to `point` ends: the nearest point of a box, a little outside of it."""
    left, bottom, right, top = box
    return min(max(point[0], left - 3), right + 3), min(max(point[1], bottom - 3), top + 3)


def along(start: Spot, end: Spot) -> Boxes:
    """Small boxes along a leader."""
    points = np.linspace(start, end, 12)
    return np.hstack([points - 1, points + 1])
