"""Training curves, read from progress.jsonl while a program writes it."""

from __future__ import annotations

import bisect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from environments import safe_open
from tasks.sandbox.progress import parse_report, value_of

READ_BYTES = 2**20
"""Read at one look: a long file is taken in over several looks, so that none takes long."""
POINTS = 256
"""At least so many of a longer curve are drawn: four for every column of a screen."""

Axis = Literal["elapsed", "step"]


class CurvePoint(NamedTuple):
    """One report of a program; None where it did not say."""

    elapsed: float | None
    """Seconds since it was ready."""
    step: float | None
    value: float


@dataclass(frozen=True)
class TrainingCurve:
    """One metric as a program reported it; of a long one every n-th point."""

    name: str = ""
    """The environment's metric, or else the first number that was reported."""
    points: tuple[CurvePoint, ...] = ()

    def along(self, axis: Axis) -> list[tuple[float, float]]:
        """(position, value), positions ascending; points without a position, or behind the last, are left out."""
        line: list[tuple[float, float]] = []
        for point in self.points:
            at = point.elapsed if axis == "elapsed" else point.step
            if at is not None and (not line or at >= line[-1][0]):
                line.append((at, point.value))
        return line


def value_at(line: list[tuple[float, float]], where: float) -> float | None:
    """A curve's value at a position, interpolated between two reports; None before the first."""
    after = bisect.bisect_right(line, where, key=lambda point: point[0])
    if after in (0, len(line)):
        return line[-1][1] if after else None
    (left, low), (right, high) = line[after - 1], line[after]
    return low + (high - low) * (where - left) / (right - left)


class CurveFile:
    """A progress.jsonl, read as it is written. Whatever a program writes there is no error here."""

    def __init__(self, path: Path, metric: str) -> None:
        self._path, self._metric = path, metric
        self._start(0)

    def _start(self, inode: int) -> None:
        self._inode, self._offset = inode, 0
        self._points: dict[str, list[CurvePoint]] = {}
        self._other = ""
        """The metric shown until the environment's own is reported."""
        self.ready = False
        self.elapsed: float | None = None
        self.step: float | None = None
        self.changed = 0.0
        """Unix time of the last change, in seconds."""

    @property
    def curve(self) -> TrainingCurve:
        name = self._metric if self._metric in self._points else self._other
        points = self._points.get(name, [])
        every = max(len(points) // POINTS, 1)
        return TrainingCurve(name, tuple(points[::-every][::-1]))  # from the end, so that the newest is there

    def read(self) -> None:
        """Take in the complete lines that are new; all of them, if the file is another one than before."""
        try:
            file = safe_open.open_file(self._path)
        except OSError:  # not there yet, already gone, or no file at all
            self._start(0)
            return
        with file:
            about = os.fstat(file.fileno())
            if about.st_ino != self._inode or about.st_size < self._offset:
                self._start(about.st_ino)
            self.changed = about.st_mtime
            file.seek(self._offset)
            new = file.read(READ_BYTES)
        end = new.rfind(b"\n") + 1
        self._offset += len(new) if not end and len(new) == READ_BYTES else end  # an endless line is skipped
        for line in new[:end].splitlines():
            self._take(line)

    def _take(self, line: bytes) -> None:
        report = parse_report(line)
        if report is None:
            return
        elapsed, step = (value_of({"metrics": report}, name, None) for name in ("elapsed", "step"))
        self.ready = self.ready or report.get("ready") is True or elapsed is not None or step is not None
        self.elapsed = self.elapsed if elapsed is None else elapsed
        self.step = self.step if step is None else step
        metrics = report.get("metrics")
        names = metrics if isinstance(metrics, dict) else {}
        values = {name: value for name in names if (value := value_of(report, name, None)) is not None}
        self._other = self._other or (next(iter(values), "") if self._metric not in values else "")
        for name in values.keys() & {self._metric, self._other}:
            self._points.setdefault(name, []).append(CurvePoint(elapsed, step, values[name]))
