"""What the terminal shows: every line within the edge at any width, honest words, and nothing hostile let through."""

from __future__ import annotations

import dataclasses
import io
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from environments import Environment
from flows.views import live_view as live
from flows.views import overview, tables, terminal
from flows.views.curves import CurvePoint, TrainingCurve
from flows.views.live_model import CampaignProgress, Certifying, LiveModel, UnderWay
from flows.views.live_view import live_view, moment, spark
from tasks.describe import UNPROVEN
from tasks.trial import History, Params, Proposal, Trial
from tasks.verdict_styles import VERDICTS
from tests.support.histories import tried
from tests.support.ledgers import created
from tests.support.terminals import printed

WIDTHS = (20, 60, 80, 100, 160)
EVIL = "red [bold red]alert[/] \x1b[2J\x1b]0;title\x07 \u202egnp.exe\r\nsecond line \x9b31m"
PROGRESS = CampaignProgress(3, 8, 75.0, 0.45, "trials", 2e9 + 120)
NOTHING_CANCELLED = {"due": 0, "spared": 0, "spared_kept": 0, "share_lost": None}
PARAMS: Params = {"learning_rate": 2e-5, "num_envs": 8, "epochs": 4, "gamma": 0.99, "act": "tanh"}
OTHERS: Params = {"learning_rate": 1.6e-3, "num_envs": 32, "epochs": 4, "gamma": 0.98, "act": "tanh"}


def decided(history: History, score: float | None, params: Params, higher_is_better: bool = True) -> Trial:
    return tried(history, score, params=params, higher_is_better=higher_is_better)


def rising(by: float, until: float = 10.0) -> TrainingCurve:
    return TrainingCurve("loss", tuple(CurvePoint(at / 2, 100.0 * at, by * at) for at in range(1, int(until * 2) + 1)))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return created(tmp_path).environment.model_copy(update={"budget_seconds": 10.0})


def under_way(**given: Any) -> UnderWay:
    base: dict[str, Any] = {
        "number": 4, "proposal": Proposal(OTHERS, rationale="a random draw"), "phase": "training", "elapsed": 6.1,
        "step": 1200.0, "curve": rising(2.0, 6.0), "champion_curve": rising(1.0),
    }  # fmt: skip
    return UnderWay(**{**base, **given})


def scene(
    environment: Environment, trial: UnderWay | None, history: History | None = None, others: tuple[UnderWay, ...] = ()
) -> LiveModel:
    trials = (*([trial] if trial else []), *others)
    history = (decided((), 5.0, PARAMS, higher_is_better=False),) if history is None else history
    return LiveModel(
        environment, history, trials, PROGRESS, "http://127.0.0.1:4200/flow-runs/flow-run/" + "0" * 36, 2e9
    )


def lines(model: LiveModel | str, width: int = 100, height: int = 30) -> list[str]:
    return [line.rstrip() for line in printed(live_view(model, width, height), width, screen=True).splitlines()]


def test_a_picture_says_what_is_tried_and_why_and_how_it_stands_against_the_champion(environment: Environment) -> None:
    shown = "\n".join(lines(scene(environment, under_way())))
    for words in (
        "trial 4    training  6.1 s of 10 s", "why      a random draw",
        "changed  learning_rate 2e-05 → 0.0016 · num_envs 8 → 32 · gamma 0.99 → 0.98",
        "loss 24 at 6.0 s: behind", "had 12 there; trial 0 scored 5", "3 of 8 trials, 75 s", "in 2.0 min",
        "http://127.0.0.1:4200/flow-runs/flow-run/0000",
    ):  # fmt: skip
        assert words in shown, words
    assert "epochs" not in shown and "act" not in shown, "the champion has the same"


def test_a_picture_says_which_run_of_a_trial_it_is(environment: Environment) -> None:
    shown = lines(scene(environment, under_way(run="run 2 of 3")))
    assert shown[1] == " trial 4    training  run 2 of 3  6.1 s of 10 s"


@pytest.mark.parametrize("width", WIDTHS)
def test_trials_beside_the_first_have_a_line_each(environment: Environment, width: int) -> None:
    more = (under_way(number=5, elapsed=5.0), under_way(number=6, phase="starting", elapsed=0.0, curve=TrainingCurve()))
    shown = lines(scene(environment, under_way(), others=more), width)
    assert max(map(cell_len, shown)) <= width
    five, six = (next(line for line in shown if line.startswith(f" trial {number}")) for number in (5, 6))
    if width >= 80:
        assert "training" in five and "━" in five and "loss 24 at 6.0 s: behind" in five
        assert "starting" in six and "━" not in six and "no report yet" in six


@pytest.mark.parametrize("width", WIDTHS)
def test_a_certificate_that_is_made_is_shown_with_its_runs(environment: Environment, width: int) -> None:
    making = dataclasses.replace(scene(environment, None), certifying=Certifying(7, 3, 6, 5.0))
    shown = lines(making, width)
    assert max(map(cell_len, shown)) <= width
    assert any(line.startswith(" certifying") for line in shown)
    if width >= 80:
        assert " certifying run 3 of at most 6" in shown
        assert any("trial 7 and the baseline" in line for line in shown)
    assert [line.split()[0] for line in lines(making, width, 3)][-1] == "campaign"


def test_the_champion_is_said_to_have_scored_the_mean_of_its_runs(environment: Environment) -> None:
    history = (tried((), 5.0, 7.0, params=PARAMS, higher_is_better=False),)
    assert "trial 0 scored 6" in "\n".join(lines(scene(environment, under_way(), history)))


def test_ahead_means_better_whichever_way_the_metric_points(environment: Environment) -> None:
    assert "behind" in "\n".join(lines(scene(environment, under_way())))
    upward = environment.model_copy(update={"direction": "maximize"})
    assert "ahead" in "\n".join(lines(scene(upward, under_way())))


def test_nobody_is_ahead_by_another_metric_than_the_environments(environment: Environment) -> None:
    curves = [TrainingCurve("entropy", rising(by).points) for by in (2.0, 1.0)]
    shown = "\n".join(lines(scene(environment, under_way(curve=curves[0], champion_curve=curves[1]))))
    assert "entropy 40 at 10 s" in shown and "had 20 there" in shown
    assert "ahead" not in shown and "behind" not in shown
    mixed = "\n".join(lines(scene(environment, under_way(curve=curves[0]))))
    assert "had" not in mixed, "two different metrics do not compare"


def test_curves_are_compared_at_equal_steps_where_steps_bind(environment: Environment) -> None:
    by_steps = environment.model_copy(update={"budget_steps": 2000})
    slow = TrainingCurve(
        "loss",
        tuple(CurvePoint(point.elapsed and point.elapsed / 2, point.step, point.value) for point in rising(1.0).points),
    )
    shown = "\n".join(lines(scene(by_steps, under_way(champion_curve=slow))))
    assert "1,200 of 2,000 steps" in shown and "at step 1,200" in shown and "had 12 there" in shown


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"curve": TrainingCurve(), "champion_curve": TrainingCurve(), "phase": "starting", "elapsed": 0.0},
        {
            "curve": TrainingCurve(EVIL, rising(1e30).points),
            "champion_curve": TrainingCurve(EVIL, rising(-1e30).points),
        },
        {"proposal": Proposal({f"parameter_{n}": "日本" * n for n in range(40)}, edit="+a\n-b\n", rationale=EVIL * 40)},
        {"curve": TrainingCurve("loss", (CurvePoint(None, 5.0, 1.0),)), "step": None},
    ],
)
def test_no_line_of_a_picture_is_wider_than_the_terminal(
    environment: Environment, width: int, given: dict[str, Any]
) -> None:
    for trial in (under_way(**given), None):
        for history in (None, ()):
            for line in lines(scene(environment, trial, history), width):
                assert cell_len(line) <= width and line.isprintable(), line


def test_a_low_window_keeps_what_matters_most(environment: Environment) -> None:
    for height in range(1, 12):
        assert len(lines(scene(environment, under_way()), height=height)) <= max(height - 1, 1)
    shown = lines(scene(environment, under_way()), height=5)
    assert [line.split()[0] for line in shown] == ["trial", "curve", "champion", "campaign"]
    assert lines(scene(environment, under_way()), height=2)[0].startswith(" campaign")


def test_a_narrow_terminal_gets_the_site_instead_of_half_an_address(environment: Environment) -> None:
    assert lines(scene(environment, under_way()), 60)[-1].split() == ["prefect", "http://127.0.0.1:4200"]


def test_an_edit_of_the_program_is_counted(environment: Environment) -> None:
    edit = "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,3 @@\n-old\n+new\n+more\n same\n"
    shown = lines(scene(environment, under_way(proposal=Proposal(PARAMS, edit=edit))))
    assert any("changed  the program, +2 -1 lines" in line for line in shown)


def test_the_same_parameters_once_more_are_said_to_be_so(environment: Environment) -> None:
    shown = lines(scene(environment, under_way(proposal=Proposal(PARAMS))))
    assert any("nothing: the champion's parameters again" in line for line in shown)


def test_a_curve_is_drawn_up_to_where_it_has_got() -> None:
    line = [(at, float(at)) for at in range(1, 6)]
    assert spark(line, 10.0, 10, (1.0, 5.0)) == "▁▃▅▇█·····"
    assert spark(line, 10.0, 10, (1.0, 5.0), to_the_end=True) == "▁▃▅▇██████"
    assert spark([], 10.0, 4, (0.0, 0.0)) == "····"
    assert spark([(3.0, 1.0)], 4.0, 4, (1.0, 1.0)) == "  ▅·"


def test_times_are_said_as_people_say_them() -> None:
    assert moment(2e9 + 42, 2e9).endswith(", in 42 s")
    assert moment(2e9 + 600, 2e9).endswith(", in 10.0 min")
    assert moment(2e9 + 7200, 2e9).endswith(", in 2.0 h")
    assert len(moment(2e9 + 5 * 86400, 2e9).split()) == 8, "the day is named"


def test_a_missing_picture_says_why() -> None:
    assert lines("starting ... 3 s") == ["            starting ... 3 s"]
    assert lines(EVIL)[0].isprintable()


def test_each_verdict_has_its_sign_its_reason_and_what_was_changed() -> None:
    first = decided((), 5.0, PARAMS)
    better = decided((first,), 9.0, OTHERS)
    crash = decided((first, better), None, PARAMS)
    history = (first, better, crash)
    shown = [terminal.trial_line(trial, history).plain for trial in history]
    assert shown[0] == " +    0  keep             5  the baseline"
    assert shown[1].startswith(
        " +    1  keep             9  better than trial 0: 9 against 5 (+4)  learning_rate 2e-05"
    )
    assert shown[2].startswith(" x    2  crash            -  exited with status 3  learning_rate 0.0016 → 2e-05")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_decided_trial_is_one_line_on_a_screen_and_whole_in_a_file(width: int) -> None:
    first = decided((), 71.21, PARAMS)
    history = (first, decided((first,), -137.59, OTHERS))
    line = terminal.trial_line(history[1], history)
    (cut,) = printed(line, width, screen=True).splitlines()
    assert cell_len(cut) <= width
    if width >= 80:
        assert " -    1  discard     -137.6  not better than trial 0: -137.6 against 71.21 (-208.8)" in line.plain
        assert "not better than trial 0" in cut
    assert printed(line, width).splitlines() == [line.plain] and line.plain.endswith("0.99 → 0.98")


def test_what_is_not_printable_is_written_out() -> None:
    assert terminal.clean("a\x1b[31mb\x07\u202e\x9b\ud800") == r"a\x1b[31mb\x07\u202e\x9b\ud800"
    assert terminal.clean(" two\r\nlines\tand  more ") == "two lines and more"


def document(count: int = 3, params: Params | None = None, **more: Any) -> dict[str, Any]:
    """A status document of a campaign with so many trials, each better than the last."""
    trials = [
        {
            "trial": number, "attempt": 1, "verdict": "crash" if number == 2 else "keep", "comparable": True, "was": [], "level": None,
            "score": None if number == 2 else 10.0 * number, "se": 1.5, "n": 3, "seconds": 5.0,
            "params": {**PARAMS, "epochs": number, **(params or {})} if number else PARAMS,
            "description": EVIL, "reason": EVIL, "proposer": "test", "runs": 1 if number else 3, "reruns": [],
        }
        for number in range(count)
    ]  # fmt: skip
    scored = [trial for trial in trials if trial["score"] is not None]
    champion = {
        **scored[-1], "level": "provisional", "estimate": {"level": 33.0, "se": 4.0, "run_sd": 5.0}
    }  # fmt: skip
    return {
        "campaign": "n-1", "state": "finished", "reason": "all done", "metric": "loss", "direction": "maximize",
        "baseline": scored[0], "champion": champion, "spec": {"rule": "certify"},
        "shipped": None, "shipped_trial": None, "certificate": None, "uncertified": None, "ablation": [], "transfers": [], "cancelled": NOTHING_CANCELLED, "trials": trials, "waiting_to_record": 0, "urls": {},
        "sources": [], "fallbacks": 0, "incidents": [], "waiting": [], "inbox": [],
        "spent": {"seconds": 60.0}, **more,
    }  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
def test_before_the_first_verdict_there_is_a_table_without_rows(width: int) -> None:
    found = document() | {"trials": [], "baseline": None, "champion": None, "state": "running"}
    assert "n-1" in printed(partial(tables.campaign_table, found), width, screen=True)


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_a_table_has_a_line_per_trial_within_the_width(width: int) -> None:
    found = document(9, OTHERS | {"act": "[red]日本[/] \x1b[31m"})
    text = printed(partial(tables.campaign_table, found), width, screen=True)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    rows = [line for line in text.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert [row.split()[1] for row in rows] == ["+", "+", "x", *"++++++"]
    assert "\x1b" not in text


def test_a_wide_table_has_a_column_per_parameter_and_the_score_between_worst_and_best() -> None:
    text = printed(partial(tables.campaign_table, document(4, OTHERS)), 160)
    assert "worse     better" in text and "learning_rate" in text and "[red]" not in text
    assert "┊··············●" in text and "0.0016" in text


def test_better_stands_to_the_right_when_less_is_better_too() -> None:
    text = printed(partial(tables.campaign_table, document(4, direction="minimize")), 160)
    assert "●··············┊" in text


def test_a_long_table_shows_what_was_kept_and_the_last_trials() -> None:
    found = document(300)
    for trial in found["trials"][1:-1]:
        trial["verdict"] = "discard"
    found["trials"][50]["verdict"] = "keep"
    text = printed(partial(tables.campaign_table, found), 100)
    numbers = [int(line.split()[0]) for line in text.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert numbers[:2] == [0, 50] and numbers[2:22] == list(range(280, 300))
    assert "278 that were not kept are left out: nightshift status n-1 --last 300" in text
    every = printed(partial(tables.campaign_table, found, last=300), 100)
    assert every.count("discard") == 297 and "left out" not in every


def test_the_outcome_is_honest_about_what_it_is_worth() -> None:
    text = printed(lambda console: overview.outcome(document(5), console))
    assert "n-1 is finished: all done (60 s)" in text
    assert "champion: trial 4, loss 40 against the baseline's 0 (+40)\n  epochs 4 → 4" not in text
    assert "provisional: one training run" in text and "overestimates" in text
    assert "estimated mean is 33 (se 4)" in text
    assert UNPROVEN in text


def test_a_champion_that_is_the_baseline_is_said_to_stand() -> None:
    text = printed(lambda console: overview.outcome(document(1), console))
    assert "the baseline stands: loss 0; nothing that was tried was kept" in text


def test_a_campaign_without_a_score_says_why() -> None:
    found = document(1, reason=EVIL, baseline=None, champion=None, state="failed")
    text = printed(lambda console: overview.outcome(found, console))
    assert "No trial has a score yet." in text
    assert r"[bold red]alert[/] \x1b[2J" in text and "\x1b" not in text


def test_what_to_open_is_listed_whole(tmp_path: Path) -> None:
    urls = {
        "prefect": "http://p/1", "mlflow_command": "X=1 mlflow ui --port 5000", "mlflow_path": "/#/a?k=" + "f" * 64,
        "mlflow_nights_path": "/#/nights",
    }  # fmt: skip
    text = printed(lambda console: overview.what_next(document(urls=urls), tmp_path, console), 60)
    assert "http://127.0.0.1:5000/#/a?k=" + "f" * 64 in text and "http://127.0.0.1:5000/#/nights" in text
    assert "progress.png" not in text and "http://p/1" not in text, "neither is there any more, or yet"
    (tmp_path / "progress.png").touch()
    running = document(state="running", urls={**urls, "mlflow_url": "http://m/1"})
    text = printed(lambda console: overview.what_next(running, tmp_path, console), 60)
    assert f"{tmp_path}/progress.png" in text and "http://p/1" in text


def test_an_address_of_a_tracking_server_needs_no_command(tmp_path: Path) -> None:
    urls = {"mlflow_url": "http://m/1", "mlflow_nights_url": "http://m/2"}
    text = printed(lambda console: overview.what_next(document(urls=urls), tmp_path, console))
    assert "mlflow       http://m/1\n    campaigns  http://m/2\n" in text


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_the_list_of_campaigns_fits(width: int) -> None:
    row = {"campaign": "lunar_lander-12", "environment": "lunar_lander", "state": "interrupted", "trials": 300}
    text = printed(
        partial(tables.campaigns_table, [{**row, "baseline": {"score": -81.0}, "champion": None, "created": 2e9}] * 3),
        width,
        screen=True,
    )
    assert text.count("lunar_lander-12") == 3 and text.count("interrupted") == 3
    assert max(map(cell_len, text.splitlines())) <= width


def test_an_empty_list_says_how_to_begin() -> None:
    assert printed(partial(tables.campaigns_table, [])) == "no campaign yet; to begin one: nightshift run cartpole\n"


def test_an_encoding_without_our_signs_gets_ascii(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii", write_through=True))
    console, history = terminal.console(), (decided((), 5.0, PARAMS),)
    terminal.put(console, live_view(scene(environment, under_way()), 160, 30))
    terminal.put(console, tables.campaign_table(document(4, OTHERS), console))
    overview.outcome(document(4), console)
    overview.what_next(document(4), tmp_path / "日本", console)
    terminal.put(console, terminal.trial_line(decided(history, 9.0, OTHERS), history))
    shown = written.getvalue().decode("ascii")
    assert "learning_rate 2e-05 > 0.0016" in shown and "==" in shown and "/??/" in shown


def test_the_names_of_the_phases_are_told_apart_without_colour() -> None:
    assert len({shown.mark for shown in VERDICTS.values()}) == len(VERDICTS)
    assert live.BLOCKS == "▁▂▃▄▅▆▇█"


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_the_name_of_a_campaign_is_never_cut(width: int, tmp_path: Path) -> None:
    name = "a-campaign-whose-name-is-long-for-a-name"
    found = document(3 if width > 60 else 1) | {"campaign": name}
    row = {
        "campaign": name, "environment": "x" * 90, "state": "running", "trials": 3, "baseline": None,
        "champion": None, "created": 2e9,
    }  # fmt: skip
    assert name in printed(partial(tables.campaigns_table, [row]), width, screen=True)
    assert printed(partial(overview.show, found, tmp_path), width, screen=True).count(name) >= 2
