"""What MLflow is told of a trial, where the trial's own program wrote it: nothing there is believed."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from tasks.tracking import trial_run
from tasks.tracking.trial_run import curves
from tasks.tracking.values import MetricPoint


def written(folder: Path, *lines: object) -> Path:
    path = folder / "progress.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def report(step: int | None = 1, elapsed: float | None = 1.0, **metrics: Any) -> dict[str, Any]:
    stated = {"step": step, "elapsed": elapsed}
    return {**{name: value for name, value in stated.items() if value is not None}, "metrics": metrics}


def test_lines_that_are_no_reports_and_values_that_are_no_numbers_are_passed_over(tmp_path: Path) -> None:
    lines = [
        "\n",
        "not json\n",
        "[1]\n",
        '{"metrics": 3}\n',
        "[" * 100_000 + "\n",
        report(-1, a=1.0),
        report(10**400, a=1.0),
        report(b=float("nan"), c=float("inf"), d="text", e=True, f=None, g=10**400),
    ]
    path = written(tmp_path, *lines, report(7, 2.0, a=3.0), '{"step": 8, "metrics": {"a": 4')
    assert curves(path, 1000) == [MetricPoint("train/a", 3.0, 3000, 7)]


def test_a_long_curve_is_thinned_and_keeps_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, *(report(step, a=float(step)) for step in range(1001)))
    steps = [point.step for point in curves(path, 0)]
    assert len(steps) <= trial_run.CURVE_POINTS and steps[-1] == 1000
    assert {after - before for before, after in pairwise(steps)} == {6}


def test_a_report_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path, report(a=1.0))
    (tmp_path / "link.jsonl").symlink_to(path)
    assert curves(tmp_path / "link.jsonl", 0) == []
