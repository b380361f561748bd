"""Training curves, read from what a program writes while it writes it."""

from __future__ import annotations

import bisect
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from environments import safe_open

READ_BYTES = 2**20
"""Of a curve at one look: a long one is taken in over several looks, and none of them is felt."""
LINE_BYTES = 64 * 2**10
"""A longer line of progress.jsonl is no report, and is skipped."""
POINTS = 256
"""Of a curve: when twice as many are there it is thinned to so many, four for every column of a screen."""

Axis = Literal["elapsed", "step"]


class Point(NamedTuple):
    """One report of a program; what it did not say is None."""

    elapsed: float | None
    """Seconds since it was ready."""
    step: float | None
    value: float


@dataclass(frozen=True)
class Curve:
    """A training curve: one metric as a program reported it, thinned where it is long."""

    name: str = ""
    """The metric: the environment's own, or else the first number that was reported."""
    points: tuple[Point, ...] = ()

    def along(self, axis: Axis) -> list[tuple[float, float]]:
        """(position, value) where the position is known and goes on: a program that begins anew is cut there."""
        line: list[tuple[float, float]] = []
        for point in self.points:
            at = point.elapsed if axis == "elapsed" else point.step
            if at is not None and (not line or at >= line[-1][0]):
                line.append((at, point.value))
        return line


def value_at(line: list[tuple[float, float]], where: float) -> float | None:
    """The value of a curve's line at a position, in proportion between two reports; None before the first."""
    after = bisect.bisect_right(line, where, key=lambda point: point[0])
    if after in (0, len(line)):
        return line[-1][1] if after else None
    (left, low), (right, high) = line[after - 1], line[after]
    return low + (high - low) * (where - left) / (right - left)


class _Series:
    """The points of one metric, evenly thinned as they become many; the newest is always there."""

    def __init__(self) -> None:
        self._kept: list[Point] = []
        self._seen, self._every = 0, 1
        self._newest: Point | None = None

    def add(self, point: Point) -> None:
        self._newest = point
        if self._seen % self._every == 0:
            self._kept.append(point)
        self._seen += 1
        if len(self._kept) == 2 * POINTS:
            self._every *= 2
            del self._kept[1::2]

    def points(self) -> tuple[Point, ...]:
        end = () if self._newest is None or self._kept[-1] is self._newest else (self._newest,)
        return (*self._kept, *end)


class CurveFile:
    """A progress.jsonl, read as a program writes it. The program is not to be trusted with what it writes."""

    def __init__(self, path: Path, metric: str) -> None:
        self._path, self._metric = path, metric
        self._forget()

    def _forget(self) -> None:
        self._inode = self._offset = 0
        self._skipping = False
        self._series: dict[str, _Series] = {}
        self._other = ""
        """What is shown while the environment's own metric has not been reported."""
        self.ready = False
        self.elapsed: float | None = None
        self.step: float | None = None
        self.changed = 0.0
        """Unix time of the last change, in seconds."""

    @property
    def curve(self) -> Curve:
        name = self._metric if self._metric in self._series else self._other
        return Curve(name, self._series[name].points()) if name in self._series else Curve()

    def read(self) -> None:
        """Take in the complete lines that are new, or all of them when the file is another one than before."""
        try:
            file = safe_open.open_file(self._path)
        except OSError:  # not there yet, already gone, or no file at all
            self._forget()
            return
        with file:
            about = os.fstat(file.fileno())
            if about.st_ino != self._inode or about.st_size < self._offset:
                self._forget()
            self._inode, self.changed = about.st_ino, about.st_mtime
            if about.st_size > self._offset:
                file.seek(self._offset)
                self._take_in(file.read(READ_BYTES))

    def _take_in(self, new: bytes) -> None:
        end = new.rfind(b"\n") + 1
        lines = new[:end].splitlines()
        if self._skipping and end:  # here ends the line that was too long
            self._skipping, lines = False, lines[1:]
        if self._skipping or len(new) - end > LINE_BYTES:
            self._skipping, end = True, len(new)
        self._offset += end
        for line in lines:
            if len(line) <= LINE_BYTES:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            report = json.loads(line, parse_int=float)  # whole numbers as well, however long
        except (ValueError, RecursionError):
            return
        if not isinstance(report, dict):
            return
        elapsed, step = _finite(report.get("elapsed")), _finite(report.get("step"))
        self.ready = self.ready or report.get("ready") is True or elapsed is not None or step is not None
        self.elapsed = self.elapsed if elapsed is None else elapsed
        self.step = self.step if step is None else step
        metrics = report.get("metrics")
        numbers = metrics.items() if isinstance(metrics, dict) else ()
        found = {name: value for name, number in numbers if (value := _finite(number)) is not None}
        self._other = self._other or (next(iter(found), "") if self._metric not in found else "")
        for name in found.keys() & {self._metric, self._other}:
            self._series.setdefault(name, _Series()).add(Point(elapsed, step, found[name]))


def _finite(value: object) -> float | None:
    return value if isinstance(value, float) and math.isfinite(value) else None
