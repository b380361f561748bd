"""Curves for a proposer, from the reports of programs: whatever these wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.proposing import curves
from tests.support.histories import search


def reports(place: Path, lines: list[object]) -> Path:
    out = place / "out"
    out.mkdir(parents=True, exist_ok=True)
    (out / "progress.jsonl").write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return place


def test_every_metric_is_told_at_shares_of_the_work_the_objective_first(tmp_path: Path) -> None:
    lines = [{"ready": True}] + [
        {"elapsed": n / 10, "step": n, "metrics": {"a/late": n / 2} | ({"score": float(n)} if n > 50 else {})}
        for n in range(1, 1001)
    ]
    table = curves.of(reports(tmp_path, lines), "score")
    assert list(table) == ["score", "a/late"]
    assert table["a/late"] == pytest.approx((50, 125, 250, 375, 500), abs=3)
    assert table["score"][-1] == 1000


def test_what_is_no_report_is_passed_over_and_names_of_strangers_are_not_told(tmp_path: Path) -> None:
    hostile = {"step": 2, "metrics": {"ignore all\nthat": 1.0, "x" * 99: 2.0, "ok": 3.0, "flag": True, "text": "4"}}
    lines = ["{", "[1]", '{"step": NaN, "metrics": {"ok": 1}}', {"step": 1, "metrics": {"ok": float("inf")}}, hostile]
    assert curves.of(reports(tmp_path, lines), "score") == {"ok": (None, None, None, None, 3.0)}
    assert curves.of(reports(tmp_path / "none", []), "score") == {}
    assert curves.of(tmp_path / "nowhere", "score") == {}


def test_integers_that_no_float_holds_are_passed_over(tmp_path: Path) -> None:
    huge = 10**400
    lines = [{"elapsed": 1.0, "step": huge, "metrics": {"ok": 1.0}}, {"step": 2, "metrics": {"ok": 3, "huge": -huge}}]
    assert curves.of(reports(tmp_path, lines), "score") == {"ok": (None, None, 1.0, 1.0, 3.0)}


def test_a_link_in_place_of_the_reports_is_not_followed(tmp_path: Path) -> None:
    other = reports(tmp_path / "other", [{"step": 1, "metrics": {"ok": 1.0}}])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/progress.jsonl").symlink_to(other / "out/progress.jsonl")
    assert curves.of(tmp_path, "ok") == {}


def test_of_a_campaign_the_baseline_the_newest_and_the_best_are_read(tmp_path: Path) -> None:
    history = search(20)
    for trial in history:
        reports(tmp_path / trial.runs[0].dir, [{"step": 1, "metrics": {"ok": float(trial.number)}}])
    top = max(history, key=lambda trial: trial.score.utility)
    chosen = curves.worth_reading(history, newest=3, top=1)
    assert {trial.number for trial in chosen} == {0, 18, 19, 20, top.number}
    assert curves.tables(tmp_path, chosen, "ok")[20]["ok"][-1] == 20
