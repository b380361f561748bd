"""What MLflow is told of a trial, where the trial's own program wrote it: nothing there is believed."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from environments.score import Score
from tasks.sandbox.usage import MOST_SAMPLES, ResourceUsage, Samples
from tasks.tracking import trial_run
from tasks.tracking.campaign_run import campaign_note, progress_points, summary_points
from tasks.tracking.trial_run import (
    CampaignRecord,
    curves,
    log_tail,
    logarithms,
    metric_key,
    system_points,
    trial_note,
    trial_scalars,
    trial_times,
)
from tasks.tracking.views import RunsPage, experiments_page, nights_view, trials_view
from tasks.trial import History, Params, Proposal, Rerun, ResourceSample, Run, Trial, Verdict, VerdictKind, best
from tests.support.mlflow_records import BEGIN, make_trial

NIGHT = CampaignRecord("night", "abc", "cartpole", "return/mean", True, None, 1.7e9, {}, ("lr", "gamma"))
LOSSES = CampaignRecord("night", "abc", "cartpole", "loss", False, None, 1.7e9, {}, ("lr", "gamma"))


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
        '{"elapsed": "1", "step": 5, "metrics": {"a": 1}}',
        '{"elapsed": 0.5, "step": 5, "metrics": {"a": 1}}',
        '{"elapsed": 1, "step": 6, "metr',
    )
    assert curves(progress, 1000) == [("train/a", 1.0, 1500, 5)]


def test_a_long_curve_is_thinned_and_keeps_its_ends(tmp_path: Path) -> None:
    lines = (f'{{"elapsed": {i}, "step": {i}, "metrics": {{"a": {i}}}}}' for i in range(3000))
    curve = curves(write_progress(tmp_path, *lines), 0)
    assert len(curve) == trial_run.CURVE_POINTS
    assert (curve[0].step, curve[-1].step) == (0, 2999)
    assert curve == curves(tmp_path / "progress.jsonl", 0)


def test_many_curves_share_the_points(tmp_path: Path) -> None:
    metrics = json.dumps({f"m{k}": 1 for k in range(300)})
    lines = (f'{{"elapsed": {i}, "step": {i}, "metrics": {metrics}}}' for i in range(100))
    points = curves(write_progress(tmp_path, *lines), 0)
    assert len({p.key for p in points}) == trial_run.CURVES
    assert len(points) <= trial_run.POINTS


def test_a_huge_report_file_is_sampled_from_end_to_end(tmp_path: Path) -> None:
    lines = [f'{{"elapsed": {i}, "step": {i}, "metrics": {{"a": {i}}}}}' for i in range(200_000)]
    curve = curves(write_progress(tmp_path, *lines), 0)
    assert 150 < len(curve) <= trial_run.CURVE_POINTS
    assert (curve[0].step < 2000, curve[-1].step > 198_000) == (True, True)


def test_a_report_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    elsewhere = write_progress(tmp_path, '{"elapsed": 1, "step": 10, "metrics": {"a": 1}}')
    (tmp_path / "link").symlink_to(elsewhere)
    assert curves(tmp_path / "link", 0) == []


@pytest.mark.parametrize(
    ("name", "key"),
    [("return/mean", "return/mean"), ("pass@1", "pass_1"), ("a[0]", "a_0_"), ("/../a//b/.", "a/b"), ("", "_")],
)
def test_names_become_names_that_mlflow_takes(name: str, key: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert metric_key(name) == key
    _validate_metric_name(key)  # type: ignore[no-untyped-call]


def test_of_a_long_log_only_the_end_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"first line\n" + b"x" * 99 + b"\n" * 1 + b"\xff middle\n" * 20_000 + b"the end\n")
    tail = log_tail(log)
    assert len(tail) <= trial_run.LOG_BYTES
    assert tail.startswith("\N{REPLACEMENT CHARACTER} middle\n")
    assert tail.endswith("the end\n")


# The campaign's own run


def night(*scores: float | None, params: tuple[Params, ...] = (), higher_is_better: bool = True) -> History:
    """Trials decided one after the other, each kept if it is the best so far; None is a crash."""
    history: History = ()
    for number, value in enumerate(scores):
        score = Score.missing("boom", True) if value is None else Score.of([value], higher_is_better)
        champion = best(history)
        kept: VerdictKind = "keep" if champion is None or score > champion.score else "discard"
        kind: VerdictKind = "crash" if value is None else kept
        level = "provisional" if kind == "keep" else None
        proposal = Proposal(params[number] if params else {"lr": 0.1 * number})
        run = Run("", 1, 12.0, "finished", started=1.7e9 + 100 * number, wall_seconds=15.0)
        verdict = Verdict(kind, "because", level)  # type: ignore[arg-type]
        history += (Trial(number, 1, number, proposal, (run,), score, verdict, wall_seconds=36.0),)
    return history


def test_the_best_so_far_is_what_it_was_when_the_trial_was_decided() -> None:
    history = night(100.0, None, 150.0, 120.0)
    points = {trial.number: progress_points(NIGHT, trial, history) for trial in history}
    assert points[0] == [
        ("champion/score", 100.0, 1_700_000_036_000, 0),
        ("baseline/score", 100.0, 1_700_000_036_000, 0),
    ]
    assert points[1] == [("champion/score", 100.0, 1_700_000_136_000, 1)]
    assert points[2] == [("champion/score", 150.0, 1_700_000_236_000, 2)]
    assert points[3] == [("champion/score", 150.0, 1_700_000_336_000, 3)]


def test_a_night_is_summed_up_in_single_points() -> None:
    points = summary_points(NIGHT, night(100.0, None, 150.5, 120.0))
    assert {point.key: point.value for point in points} == {
        "champion/score": 100.0,  # the curve's first point, logged again
        "baseline/score": 100.0,
        "gain": 50.5,
        "trials": 3,
        "crashes": 1,
        "cancelled": 0,
        "spared": 0,
        "spared/kept": 0,
        "hours": 0.04,
    }
    assert {point.step for point in points} == {0}


def test_after_a_trial_ran_again_the_newest_figures_are_those_without_its_luck() -> None:
    before = night(100.0, 150.0, 120.0)
    unlucky = replace(before[1], attempt=2, score=Score.of([90.0], True), verdict=Verdict("discard", "because"))
    again = replace(unlucky, runs=(replace(before[1].runs[0], started=1.7e9 + 900),))
    kept = replace(before[2], verdict=Verdict("keep", "because", "provisional"))
    old, new = summary_points(NIGHT, before), summary_points(NIGHT, (before[0], again, kept))
    assert [point for point in new if point.key == "gain"] == [("gain", 20.0, 1_700_000_936_000, 0)]
    assert max(point.timestamp for point in old) < 1_700_000_936_000
    assert [point for point in new if point.step == 2] == [("champion/score", 120.0, 1_700_000_936_000, 2)]


def test_a_calibrated_run_does_not_make_a_trial_begin_before_its_campaign() -> None:
    (first,) = night(100.0)
    own, earlier = replace(first.runs[0], started=1.7e9 + 50), replace(first.runs[0], started=1.6e9)
    calibrated = Rerun(0, earlier, first.score, calibrated=True)
    assert trial_times(NIGHT, replace(first, reruns=(Rerun(0, own, first.score), calibrated))) == (
        1_700_000_000_000, 1_700_000_065_000,
    )  # fmt: skip


def test_a_gain_is_positive_when_a_lower_score_is_better() -> None:
    points = summary_points(LOSSES, night(3.0, 2.5, higher_is_better=False))
    assert {p.key: p.value for p in points}["gain"] == 0.5


@pytest.mark.parametrize("scores", [(), (None,), (None, 5.0)])
def test_without_a_baseline_to_compare_with_there_is_no_gain(scores: tuple[float | None, ...]) -> None:
    assert "gain" not in {point.key for point in summary_points(NIGHT, night(*scores))}


def test_the_note_says_first_who_won_by_how_much_and_what_that_is_worth() -> None:
    note = campaign_note(
        NIGHT,
        night(100.0, None, 150.0, params=({"lr": 1e-3, "a|b": "x"},) * 2 + ({"lr": 3e-4, "a|b": "y"},)),
        (),
        "finished",
    )
    assert note.splitlines() == [
        "**Champion: trial 2**, return/mean 150 against the baseline's 100 (+50); higher is better. "
        "Provisional: not tested on fresh runs, and the best of several is flattered by luck.",
        "",
        "finished: 2 trials besides the baseline (1 crash, 1 keep)",
        "",
        "| parameter | baseline | champion |",
        "|---|---|---|",
        "| lr | 0.001 | 0.0003 |",
        "| a_b | x | y |",
    ]


@pytest.mark.parametrize(
    ("scores", "beginning"),
    [
        ((100.0, 90.0), "**The baseline stands**: return/mean 100 (higher is better); nothing"),
        ((None,), "**No trial has a score yet.**"),
        ((None, 90.0), "**Champion: trial 1**, return/mean 90; higher is better."),
    ],
)
def test_the_note_says_when_nothing_was_won(scores: tuple[float | None, ...], beginning: str) -> None:
    assert campaign_note(NIGHT, night(*scores), ()).startswith(beginning)


def test_the_log_of_a_crash_is_quoted_as_it_is() -> None:
    (trial,) = night(None)
    crashed = Trial(0, 1, 0, trial.proposal, trial.runs, trial.score, Verdict("crash", "exited\n# a\n<b>"))
    assert trial_note(crashed) == "**crash**: exited\n\n\n\n    # a\n    <b>"


def test_figures_beside_the_score_are_logged_and_never_in_its_place() -> None:
    (trial,) = night(100.0)
    also = {"return/sampled": 80.0, "return/mean": -1.0, "score": -1.0, "a/nan": float("nan")}
    score = Score(100.0, (100.0,), None, 1, also=also)
    points = trial_scalars(NIGHT, Trial(0, 1, 0, trial.proposal, trial.runs, score, trial.verdict))
    values = {point.key: (point.value, point.step) for point in points}
    assert values == {
        "return/sampled": (80.0, 0),
        "return/mean": (100.0, 0),
        "score": (100.0, 0),
        "time/train": (12.0, 0),
    }


# Prepared pages


def state_of(view: RunsPage) -> dict[str, Any]:
    """What the page reads from the tag."""
    envelope = json.loads(view.tag[1])
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(envelope["state"].removeprefix("deflate;"))))
    return state


def charts_of(view: RunsPage) -> dict[str, list[str]]:
    """The charts of each section."""
    state = state_of(view)
    cards = [card for card in state["compareRunCharts"] if not card["deleted"]]
    names = [(card["metricSectionId"], card.get("metricKey", card["type"])) for card in cards]
    sections = [section["uuid"] for section in state["compareRunSections"]]
    assert {section for section, _ in names} == set(sections)
    return {uuid: [name for section, name in names if section == uuid] for uuid in sections}


@pytest.mark.parametrize("campaign", [NIGHT, LOSSES])
def test_the_table_has_the_best_trial_on_top_and_the_varying_parameters_as_columns(campaign: CampaignRecord) -> None:
    state = state_of(trials_view(campaign))
    assert state["searchFilter"] == "tags.kind = 'trial' and tags.campaign_id = 'abc'"
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`score`", not campaign.higher_is_better)
    assert state["columnOrder"] == state["selectedColumns"] == list(state["columnWidths"])
    assert state["selectedColumns"] == [
        "metrics.`score`",
        "tags.`verdict`",
        "tags.`level`",
        "tags.`champion`",
        "params.`lr`",
        "params.`gamma`",
        "tags.`proposer`",
        "metrics.`score/se`",
        "metrics.`time/train`",
    ]


def test_charts_are_grouped_and_drawn_of_every_trial() -> None:
    metrics = {
        "return/mean",
        "score",
        "score/se",
        "score/run",
        "score/run_sd",
        "score/rerun",
        "champion/rerun",
        "runs",
        "return/sampled",
        "train/kl",
        "train/a",
        "train/return/mean",
        "time/train",
    }
    view = trials_view(NIGHT, metrics)
    assert charts_of(view) == {
        "score": ["return/mean", "PARALLEL"],
        "against parameters": ["SCATTER", "SCATTER"],
        "training": ["train/return/mean", "train/a", "train/kl"],
        "beside the score": ["return/sampled"],
        "cost": ["time/train", "memory/peak_gb"],
    }
    state = state_of(view)
    assert state["runsHiddenMode"] == "SHOW_ALL"
    hidden = {card["metricKey"] for card in state["compareRunCharts"] if card["deleted"]}
    assert hidden == {"score", "score/se", "score/run", "score/run_sd", "score/rerun", "champion/rerun", "runs"}


def test_a_metric_called_score_keeps_its_chart() -> None:
    campaign = CampaignRecord("night", "abc", "cartpole", "score", True, None, 1.7e9, {})
    assert charts_of(trials_view(campaign))["score"] == ["score"]


def test_the_nights_of_an_environment_share_one_page() -> None:
    other = CampaignRecord("another", "def", "cartpole", "return/mean", True, None, 1.8e9, {})
    view = nights_view(NIGHT)
    assert view.key == nights_view(other).key != trials_view(NIGHT).key
    state = state_of(view)
    assert state["searchFilter"] == "tags.kind = 'campaign'"
    asked = {"tags.`certified`", "metrics.`certificate/gain`", "metrics.`champion/score`", "metrics.`gain`"}
    assert asked | {"params.`machine`", "params.`rule`"} <= set(state["selectedColumns"])
    charts = charts_of(view)["best so far"]
    assert charts == ["champion/score", "certificate/gain", "gain", "baseline/score"]


def test_a_page_from_before_views_had_names_finds_filter_order_and_columns() -> None:
    key, text = trials_view(NIGHT).tag
    envelope, state = json.loads(text), state_of(trials_view(NIGHT))
    assert key == f"mlflow.sharedViewState.{trials_view(NIGHT).key}"
    assert (envelope["name"], envelope["createdAt"]) == ("night: trials", 1_700_000_000_000)
    assert all(envelope[k] == state[k] for k in ("searchFilter", "orderByKey", "orderByAsc", "selectedColumns"))


def test_a_view_of_very_much_still_fits_into_a_tag() -> None:
    many = tuple(f"a_rather_long_parameter_{i}" for i in range(200))
    campaign = CampaignRecord("night", "abc", "cartpole", "return/mean", True, None, 1.7e9, {}, many)
    metrics = {f"train/a_rather_long_metric/{i}" for i in range(100)}
    assert len(trials_view(campaign, metrics).tag[1]) < 5000


@pytest.mark.parametrize("folder", ["flows", "tasks", "environments", "blocks"])
def test_links_into_mlflows_pages_are_made_in_one_place(folder: str) -> None:
    checkout = Path(__file__).parents[2]
    sources = [
        path.relative_to(checkout).as_posix() for path in (checkout / folder).rglob("*.py") if "#/" in path.read_text()
    ]
    assert set(sources) <= {"tasks/tracking/views.py"}


def test_every_link_states_the_workflow() -> None:
    links = [
        *(
            view.fragment("3", charts=charts)
            for view in (trials_view(NIGHT), nights_view(NIGHT))
            for charts in (False, True)
        ),
        experiments_page("http://127.0.0.1:5000"),
    ]
    assert [parse_qs(link.partition("?")[2])["workflowType"] for link in links] == [["machine_learning"]] * 5


def test_a_logarithmic_scale_is_an_axis_of_logarithms() -> None:
    campaign = replace(NIGHT, varies=("learning_rate", "clip"), logarithmic=("learning_rate",))
    assert logarithms(campaign, {"learning_rate": 0.001, "clip": 0.2}) == {"log10/learning_rate": "-3"}
    assert logarithms(campaign, {"learning_rate": 0.0}) == logarithms(campaign, {}) == {}
    cards = {card["type"]: card for card in state_of(trials_view(campaign))["compareRunCharts"]}
    assert cards["PARALLEL"]["selectedParams"] == ["log10/learning_rate", "clip"]
    assert "params.`learning_rate`" in state_of(trials_view(campaign))["selectedColumns"]


def test_a_report_without_a_step_stands_at_its_seconds_and_one_without_seconds_at_the_start(tmp_path: Path) -> None:
    progress = write_progress(
        tmp_path, '{"elapsed": 2.5, "metrics": {"a": 1}}', '{"step": 40, "metrics": {"a": 2}}', '{"metrics": {"a": 3}}'
    )
    assert curves(progress, 1000) == [("train/a", 1.0, 3500, 2), ("train/a", 2.0, 1000, 40)]


def test_the_resources_of_a_training_are_shown_by_mlflows_names() -> None:
    (run,) = make_trial().runs
    samples = (ResourceSample(1.0, 0.5, 2**20), ResourceSample(3.0, 4.5, 2**21, (2**30,)))
    found = system_points(replace(make_trial(), runs=(replace(run, resources=samples),)))
    assert [(key.removeprefix("system/"), value, step) for key, value, _, step in found] == [
        ("cpu_utilization_percentage", 50.0, 0), ("system_memory_usage_megabytes", 1.0, 0),
        ("cpu_utilization_percentage", 200.0, 1), ("system_memory_usage_megabytes", 2.0, 1),
        ("gpu_0_memory_usage_megabytes", 1024.0, 1),
    ]  # fmt: skip
    assert [moment for _, _, moment, _ in found[:3]] == [int((BEGIN + 101) * 1000)] * 2 + [int((BEGIN + 103) * 1000)]


def test_samples_are_bounded_and_evenly_spaced() -> None:
    course = Samples()
    for number in range(1000):
        course.add(float(number), ResourceUsage(1, 0, 0), ())
        assert len(course.kept) <= MOST_SAMPLES
    times = [sample.elapsed for sample in course.kept]
    assert len({after - before for before, after in pairwise(times)}) == 1 and times[-1] > 900


def test_a_link_names_the_view_and_opens_table_or_charts() -> None:
    view = trials_view(NIGHT)
    table = f"#/experiments/3/runs?viewStateShareKey={view.key}&workflowType=machine_learning"
    assert view.fragment("3") == table
    assert view.fragment("3", charts=True) == f"{table}&compareRunsMode=CHART"
