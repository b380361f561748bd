"""Names, texts and numbers as MLflow takes them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from environments.space import Value
from tasks.system.redact import clean, scrub_text

NOTE = "mlflow.note.content"
"""MLflow's tag of a description in Markdown."""


class MetricPoint(NamedTuple):
    """A point, with the fields of MLflow's `Metric`."""

    key: str
    value: float
    timestamp: int
    """Unix time in milliseconds: part of a point's identity, so never the time of logging."""
    step: int


def points(values: Mapping[str, float | None], moment: int, step: int = 0) -> list[MetricPoint]:
    """One point of each metric; none without a finite number."""
    return [
        MetricPoint(metric_key(key), value, moment, step)
        for key, value in values.items()
        if value is not None and math.isfinite(value)
    ]


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def metric_key(name: str) -> str:
    """A name that MLflow accepts: `pass@1` becomes `pass_1`."""
    parts = re.sub(r"[^\w.\-: /]", "_", name[:200]).split("/")
    return "/".join(part for part in parts if part not in ("", ".", "..")) or "_"


def parameters(values: Mapping[str, Value]) -> dict[str, str]:
    """Values as MLflow parameters; numbers stay numbers, for a numeric axis."""
    return {
        metric_key(name): f"{value:.6g}" if isinstance(value, float) else scrub_text(str(value))
        for name, value in values.items()
    }


def plain(text: str) -> str:
    """Text from a program or a model, without secrets and terminal control characters."""
    return "\n".join(clean(text))


def inert(text: str) -> str:
    """Such text safe for Markdown: without images and HTML, which a page would load from any address."""
    # A backslash in the text would escape ours.
    return re.sub(r"(\\*)(!(?=\[)|<(?=[A-Za-z/!?]))", r"\1\1\\\2", text)
