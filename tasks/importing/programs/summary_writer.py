"""Stands in for TensorBoard's SummaryWriter in an imported script: scalars become progress and the score.

Every value of the metric goes to out/metric.txt, which the judge reads. Progress lines hold the newest value of each
scalar, and of the metric the mean of its newest values, as the judge takes it. Texts, pictures and the like are
dropped.
"""

from __future__ import annotations

import atexit
import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_CONFIG = json.loads((_HERE / "config.json").read_text())
_HOW = json.loads((_HERE / "script.json").read_text())
_OUT, _BEGAN = Path(_CONFIG["out"]), time.monotonic()
_EVERY_SECONDS = 0.5


class ProgressLines:
    """What has been logged, and the lines that say so."""

    def __init__(self) -> None:
        self._metric = (_OUT / "metric.txt").open("w", buffering=1)
        self._progress = (_OUT / "progress.jsonl").open("a", buffering=1)
        self._recent: deque[float] = deque(maxlen=_HOW["window"])
        self._newest: dict[str, float] = {}
        self._step, self._written = 0, -math.inf

    def add(self, name: str, value: float, step: int | None) -> None:
        self._newest[name] = value
        self._step = max(self._step, int(step or 0))
        if name == _HOW["metric"]:
            self._metric.write(f"{value!r}\n")
            self._recent.append(value)
        if time.monotonic() - self._written > _EVERY_SECONDS:
            self.write()

    def write(self) -> None:
        if not self._newest:
            return
        mean = {_HOW["metric"]: sum(self._recent) / len(self._recent)} if self._recent else {}
        metrics = {name: value for name, value in {**self._newest, **mean}.items() if math.isfinite(value)}
        line = {"elapsed": time.monotonic() - _BEGAN, "step": self._step, "metrics": metrics}
        target = {"step_target": _CONFIG["budget_steps"]} if _HOW["steps"] and _CONFIG["budget_steps"] else {}
        self._progress.write(json.dumps({**line, **target}) + "\n")
        self._written = time.monotonic()


class SummaryWriter:
    """Takes scalars; everything else is dropped."""

    def __init__(self, log_dir: str | None = None, *_: Any, **__: Any) -> None:
        self.log_dir = log_dir or "runs"

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None, *_: Any, **__: Any) -> None:
        _lines.add(tag, _number(scalar_value), global_step)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None, *_: Any, **__: Any
    ) -> None:
        for tag, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{tag}", value, global_step)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _number(value: Any) -> float:
    """A number, also of an array or a tensor with one element."""
    return float(value.item() if hasattr(value, "item") else value)


_lines = ProgressLines()
atexit.register(_lines.write)
