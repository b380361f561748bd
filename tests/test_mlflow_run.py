"""What MLflow is told of a trial, where the trial's own program wrote it: nothing there is believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks import mlflow_run
from tasks.mlflow_run import CampaignRecord, curves, log_tail, metric_key, table_fragment, table_view


def write_progress(path: Path, *lines: str) -> Path:
    progress = path / "progress.jsonl"
    progress.write_text("\n".join(lines) + "\n")
    return progress


def test_numbers_that_are_not_finite_are_not_logged(tmp_path: Path) -> None:
    progress = write_progress(
        tmp_path,
        '{"elapsed": 1, "step": 10, "metrics": {"a": NaN, "b": Infinity, "c": -Infinity, "d": 2}}',
        '{"elapsed": 2, "step": 20, "metrics": {"a": 1' + "0" * 400 + ', "d": true, "e": "3", "f": null}}',
    )
    assert [(p.key, p.value, p.step) for p in curves(progress, 0)] == [("train/d", 2.0, 10)]


def test_lines_that_are_no_reports_are_passed_over(tmp_path: Path) -> None:
    progress = write_progress(
        tmp_path,
        '{"ready": true}',
        "[" * 50_000,
        "9" * 5_000,
        '"text"',
        "{}",
        '{"elapsed": 1, "step": -5, "metrics": {"a": 1}}',
        '{"elapsed": 1e300, "step": 5, "metrics": {"a": 1}}',
        '{"elapsed": 1, "step": 5, "metrics": [1]}',
        '{"elapsed": 1, "metrics": {"a": 1}}',
        '{"elapsed": 0.5, "step": 5, "metrics": {"a": 1}}',
        '{"elapsed": 1, "step": 6, "metr',
    )
    assert curves(progress, 1000) == [("train/a", 1.0, 1500, 5)]


def test_a_long_curve_is_thinned_and_keeps_its_ends(tmp_path: Path) -> None:
    lines = (f'{{"elapsed": {i}, "step": {i}, "metrics": {{"a": {i}}}}}' for i in range(3000))
    curve = curves(write_progress(tmp_path, *lines), 0)
    assert len(curve) == mlflow_run.CURVE_POINTS
    assert (curve[0].step, curve[-1].step) == (0, 2999)
    assert curve == curves(tmp_path / "progress.jsonl", 0)


def test_many_curves_share_the_points(tmp_path: Path) -> None:
    metrics = json.dumps({f"m{k}": 1 for k in range(300)})
    lines = (f'{{"elapsed": {i}, "step": {i}, "metrics": {metrics}}}' for i in range(100))
    points = curves(write_progress(tmp_path, *lines), 0)
    assert len({p.key for p in points}) == mlflow_run.CURVES
    assert len(points) <= mlflow_run.POINTS


def test_a_huge_report_file_is_sampled_from_end_to_end(tmp_path: Path) -> None:
    lines = [f'{{"elapsed": {i}, "step": {i}, "metrics": {{"a": {i}}}}}' for i in range(200_000)]
    curve = curves(write_progress(tmp_path, *lines), 0)
    assert 150 < len(curve) <= mlflow_run.CURVE_POINTS
    assert (curve[0].step < 2000, curve[-1].step > 198_000) == (True, True)


def test_a_report_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    elsewhere = write_progress(tmp_path, '{"elapsed": 1, "step": 10, "metrics": {"a": 1}}')
    (tmp_path / "link").symlink_to(elsewhere)
    assert curves(tmp_path / "link", 0) == []


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("return/mean", "return/mean"),
        ("pass@1", "pass_1"),
        ("a[0]", "a_0_"),
        ("/../a//b/.", "a/b"),
        ("", "_"),
    ],
)
def test_names_become_names_that_mlflow_takes(name: str, key: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert metric_key(name) == key
    _validate_metric_name(key)  # type: ignore[no-untyped-call]


def test_of_a_long_log_only_the_end_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"first line\n" + b"x" * 99 + b"\n" * 1 + b"\xff middle\n" * 20_000 + b"the end\n")
    tail = log_tail(log)
    assert len(tail) <= mlflow_run.LOG_BYTES
    assert tail.startswith("\N{REPLACEMENT CHARACTER} middle\n")
    assert tail.endswith("the end\n")


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_the_table_has_the_best_trial_on_top_and_the_varying_parameters_as_columns(
    higher_is_better: bool,
) -> None:
    campaign = CampaignRecord(
        "night", "abc", "cartpole", "loss", higher_is_better, None, 0.0, {}, ("lr", "gamma")
    )
    key, view = table_view(campaign)
    assert table_fragment("3", campaign) == f"#/experiments/3/runs?viewStateShareKey={key}"
    assert json.loads(view) == {
        "searchFilter": "tags.kind = 'trial' and tags.campaign_id = 'abc'",
        "orderByKey": "metrics.`score`",
        "orderByAsc": not higher_is_better,
        "selectedColumns": [
            "metrics.`score`",
            "tags.`verdict`",
            "params.`lr`",
            "params.`gamma`",
            "tags.`proposer`",
        ],
    }
