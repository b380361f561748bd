"""What the terminal shows: every line within the edge at any width, honest words, and nothing hostile let through."""

from __future__ import annotations

import dataclasses
import io
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from environments import Environment
from flows.views import live_view as live
from flows.views import overview, tables, terminal
from flows.views.curves import CurvePoint, TrainingCurve
from flows.views.live_model import CampaignProgress, Certifying, LiveModel, SlotState, UnderWay
from flows.views.live_view import live_view, moment, spark
from tasks.describe import UNPROVEN
from tasks.spending.spent import Spent
from tasks.trial import History, Params, Proposal, Trial, Usage
from tasks.verdict_styles import VERDICTS
from tests.support.histories import tried
from tests.support.ledgers import created
from tests.support.terminals import printed
from tests.support.terminals import terminal as terminal_of

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


def test_a_short_trial_shows_its_own_budget_and_no_curve_of_another(environment: Environment) -> None:
    short = under_way(
        proposal=Proposal(OTHERS, rationale="a draw", share=0.3), elapsed=1.5, champion_curve=TrainingCurve()
    )
    text = "\n".join(lines(scene(environment, short)))
    assert "30% of the budget" in text and "1.5 s of 3.0 s" in text and "against" not in text
    assert "against" in "\n".join(lines(scene(environment, under_way())))
    assert "30% of the budget: a draw" in live.begins_line(scene(environment, short), short).plain


def lines(model: LiveModel | str, width: int = 100, height: int = 30) -> list[str]:
    return [line.rstrip() for line in printed(live_view(model, width, height), width, screen=True).splitlines()]


def test_a_picture_says_what_is_tried_and_why_and_how_it_stands_against_the_champion(environment: Environment) -> None:
    shown = "\n".join(lines(scene(environment, under_way())))
    for words in (
        "trial 4    training  6.1 s of 10 s, 3.9 s left", "why      a random draw",
        "changed  learning_rate 2e-05 → 0.0016 · num_envs 8 → 32 · gamma 0.99 → 0.98",
        "loss 24 at 6.0 s: behind", "had 12 there; scored 5", "3 of 8 trials · 75 s of 8 h", "in 2 min, after trial 8",
        "champion   the baseline, loss 5",
        "http://127.0.0.1:4200/flow-runs/flow-run/0000",
    ):  # fmt: skip
        assert words in shown, words
    assert "epochs" not in shown and "act" not in shown, "the champion has the same"


@pytest.mark.parametrize(
    ("trials", "asked", "words"),
    [(1234.6, 2000, "1,235 of 2000 trials"), (5.4, 20, "5.4 of 20 trials"), (0, 1, "0 of 1 trial")],
)
def test_trials_are_counted_as_people_count(environment: Environment, trials: float, asked: int, words: str) -> None:
    progress = dataclasses.replace(PROGRESS, trials=trials, asked=asked)
    model = dataclasses.replace(scene(environment, under_way()), progress=progress)
    assert live.spent(model).startswith(f"{words} · ")
    assert f"[{words}, done about" in live.begins_line(model, under_way()).plain


def test_a_picture_says_which_run_of_a_trial_it_is(environment: Environment) -> None:
    shown = lines(scene(environment, under_way(run="run 2 of 3")))
    assert shown[1] == " trial 4    training  run 2 of 3  6.1 s of 10 s, 3.9 s left"


@pytest.mark.parametrize("width", WIDTHS)
def test_trials_beside_the_first_have_a_line_each(environment: Environment, width: int) -> None:
    more = (under_way(number=5, elapsed=5.0), under_way(number=6, phase="starting", elapsed=0.0, curve=TrainingCurve()))
    shown = lines(scene(environment, under_way(), others=more), width)
    assert max(map(cell_len, shown)) <= width
    five, six = (next(line for line in shown if line.startswith(f" trial {number}")) for number in (5, 6))
    if width >= 80:
        assert "training" in five and "━" in five and "loss 24 at 6.0 s: behind" in five
        assert "starting" in six and "━" not in six and "no report yet" in six


def test_the_footer_says_what_ends_the_campaign_and_what_else_may(environment: Environment) -> None:
    limits = dataclasses.replace(PROGRESS, certifies=True, patience=3, until=2e9 + 9000, max_usd=5.0)
    model = dataclasses.replace(scene(environment, under_way()), progress=limits, spent=Spent(Usage(3, 9, 9, 0.421)))
    at = time.strftime("%H:%M", time.localtime(2e9 + 9000))
    wide = " ".join(" ".join(lines(model, 160)).split())
    assert "3 of 8 trials · 75 s of 8 h · 0.42 of 5.00 USD" in wide
    assert f"in 2 min, after trial 8 and the certificate; at {at} at the latest; sooner after 3 more without" in wide
    narrow = lines(model, 80)
    (row,) = (number for number, line in enumerate(narrow) if line.startswith(" ends"))
    assert narrow[row].endswith("after trial 8 and the certificate") and f"at {at} at the latest" in narrow[row + 1]
    late = dataclasses.replace(limits, binds="until", ends=2e9 + 9000)
    assert f", at {at}; sooner" in "\n".join(lines(dataclasses.replace(model, progress=late), 160))
    unknown = Usage(3, 9, 9, None)
    assert "unknown of 5.00 USD" in "\n".join(lines(dataclasses.replace(model, spent=Spent(unknown)), 160))


def test_the_footer_says_who_holds_the_slots_and_what_does_not_answer(environment: Environment) -> None:
    slots = (SlotState("cpu-0", "trial 4"), SlotState("cpu-1", f"process 7 ({EVIL})"), SlotState("cpu-2", ""))
    model = dataclasses.replace(scene(environment, under_way()), slots=slots, unrecorded=f"3 records wait: {EVIL}")
    shown = "\n".join(lines(model, 200))
    assert (
        "2 of 3 busy, cpu-0 by trial 4, cpu-1 by process 7 (red [bold red]alert" in shown and "; free: cpu-2" in shown
    )
    assert " mlflow     3 records wait: red [bold red]" in shown and "\x1b" not in shown
    many = tuple(SlotState(f"cpu-{number}", "") for number in range(99))
    assert "0 of 99 busy\n" in "\n".join(lines(dataclasses.replace(model, slots=many)))


def test_the_champion_is_shown_with_the_baseline_and_how_sure_it_is(environment: Environment) -> None:
    first = decided((), 5.0, PARAMS, higher_is_better=False)
    history = (first, decided((first,), 3.0, OTHERS, higher_is_better=False))
    model = dataclasses.replace(scene(environment, None, history), likely=(2.5, 4.0))
    assert " champion   trial 1, loss 3 (likely 2.5 to 4), baseline 5; provisional" in lines(model, 80)


def test_a_trial_that_waits_for_a_slot_says_who_holds_it(environment: Environment) -> None:
    waits = under_way(phase="waiting", waits_for=f"cpu-0 is held by process 7 ({EVIL})", curve=TrainingCurve())
    shown = lines(scene(environment, waits, others=(dataclasses.replace(waits, number=5),)))
    assert shown[1].startswith(" trial 4    waiting  for a slot: cpu-0 is held by process 7 (red")
    assert any(line.startswith(" trial 5") and "cpu-0 is held" in line for line in shown)


def test_a_certificate_in_groups_says_when_it_is_looked_at(environment: Environment) -> None:
    made = Certifying(7, 3, 14, 5.0, ((5, 3), (10, 4)))
    shown = "\n".join(lines(dataclasses.replace(scene(environment, None), certifying=made)))
    assert "run 3 of at most 14" in shown and "after 8 (5 v 3), 14 (10 v 4) runs" in shown
    waits = dataclasses.replace(made, waits_for="cpu-0 is held by process 7")
    assert "waiting for a slot: cpu-0" in "\n".join(
        lines(dataclasses.replace(scene(environment, None), certifying=waits))
    )


def test_an_approval_says_how_long_it_waits(environment: Environment) -> None:
    model = dataclasses.replace(scene(environment, None), waiting=(3, 5), answer_by=2e9 + 2820)
    assert " waiting    trial 3, 5 for approval (47 min left): nightshift approve | reject" in lines(model)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_certificate_that_is_made_is_shown_with_its_runs(environment: Environment, width: int) -> None:
    making = dataclasses.replace(scene(environment, None), certifying=Certifying(7, 3, 6, 5.0))
    shown = lines(making, width)
    assert max(map(cell_len, shown)) <= width
    assert any(line.startswith(" certifying") for line in shown)
    if width >= 80:
        assert " certifying run 3 of at most 6" in shown
        assert any("trial 7 and the baseline" in line for line in shown)
    assert [line.split()[0] for line in lines(making, width, 4)][-1] == "spent"


def test_the_champion_is_said_to_have_scored_the_mean_of_its_runs(environment: Environment) -> None:
    history = (tried((), 5.0, 7.0, params=PARAMS, higher_is_better=False),)
    assert "scored 6" in "\n".join(lines(scene(environment, under_way(), history)))


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
    assert "1,200 of 2,000 steps (self-reported)" in shown and "at step 1,200" in shown and "had 12 there" in shown


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
    assert [line.split()[0] for line in shown] == ["trial", "champion", "spent", "ends"]
    assert lines(scene(environment, under_way()), height=2)[0].startswith(" spent")


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
    assert moment(2e9 + 600, 2e9).endswith(", in 10 min")
    assert moment(2e9 + 7200, 2e9).endswith(", in 2 h")
    assert moment(2e9 + 7800, 2e9).endswith(", in 2 h 10 min")
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
    assert shown[0] == " +    0  keep             5              5.0 s  the baseline"
    assert shown[1].startswith(
        " +    1  keep             9        +4    5.0 s  learning_rate=0.0016 num_envs=32 gamma=0.98"
    )
    assert shown[2].startswith(
        " x    2  crash            -              5.0 s  exited with status 3  learning_rate=2e-05"
    )


def test_a_gain_is_positive_where_the_score_is_better() -> None:
    first = decided((), 5.0, PARAMS, higher_is_better=False)
    better = terminal.trial_line(decided((first,), 3.0, OTHERS, higher_is_better=False), (first,))
    assert better.plain.split()[:5] == ["+", "1", "keep", "3", "+2"]


def test_a_verdict_that_its_gain_does_not_explain_says_why_first() -> None:
    first = decided((), 5.0, PARAMS)
    luck = tried((first,), 6.0, params=OTHERS, kind="discard")
    lost = tried((first,), 4.0, params=OTHERS, kind="keep")
    for trial in (luck, lost):
        assert "5.0 s  as a test says  learning_rate=" in terminal.trial_line(trial, (first,)).plain


def test_an_edit_is_told_by_its_size_and_its_reason() -> None:
    first = decided((), 5.0, PARAMS)
    trial = decided((first,), 6.0, PARAMS)
    edit = "--- a/t.py\n+++ b/t.py\n@@ -1 +1,2 @@\n-old\n+new\n+more\n"
    changed = dataclasses.replace(trial, proposal=dataclasses.replace(trial.proposal, edit=edit, rationale="clip less"))
    assert "  +2 -1 lines: clip less" in terminal.trial_line(changed, (first,)).plain
    assert "the champion again" in terminal.trial_line(trial, (first,)).plain


@pytest.mark.parametrize("width", WIDTHS)
def test_a_decided_trial_is_one_line_on_a_screen_and_whole_in_a_file(width: int) -> None:
    first = decided((), 71.21, PARAMS)
    history = (first, decided((first,), -137.59, OTHERS))
    line = terminal.trial_line(history[1], history)
    (cut,) = printed(line, width, screen=True).splitlines()
    assert cell_len(cut) <= width
    if width >= 80:
        assert cut.startswith(" -    1  discard     -137.6      -209    5.0 s  learning_rate=0.0016 num_envs=")
    assert printed(line, width).splitlines() == [line.plain]
    assert line.plain.endswith("not better than trial 0: -137.6 against 71.21 (-208.8)")


@pytest.mark.parametrize("number", [7, 1234])
def test_the_columns_of_trials_stand_below_their_headings(number: int) -> None:
    first = decided((), 5.0, PARAMS)
    trial = dataclasses.replace(decided((first,), -123456.0, OTHERS), number=number)
    line, heading = terminal.trial_line(trial, (first,)).plain, terminal.HEADING.plain
    for name, text in (("score", "-123,456"), ("gain", "-123,461"), ("time", "5.0 s")):
        assert heading.index(name) + len(name) == line.index(text) + len(text), name
    assert line.index("learning_rate") == heading.index("tried")


def test_what_is_not_printable_is_written_out() -> None:
    assert terminal.clean("a\x1b[31mb\x07\u202e\x9b\ud800") == r"a\x1b[31mb\x07\u202e\x9b\ud800"
    assert terminal.clean(" two\r\nlines\tand  more ") == "two lines and more"


NO_MONEY = {"usd": None, "unknown": None, "gpu_hours": 0.0, "calls": 0, "next": None}


def document(count: int = 3, params: Params | None = None, **more: Any) -> dict[str, Any]:
    """A status document of a campaign with so many trials, each better than the last."""
    trials = [
        {
            "trial": number, "attempt": 1, "verdict": "crash" if number == 2 else "keep", "comparable": True, "level": None,
            "score": None if number == 2 else 10.0 * number, "se": 1.5, "n": 3, "seconds": 5.0,
            "params": {**PARAMS, "epochs": number, **(params or {})} if number else PARAMS,
            "description": EVIL, "reason": EVIL, "proposer": "test", "runs": 1 if number else 3, "reruns": [],
            "share": 1.0, "promotes": None, "promoted": None,
        }
        for number in range(count)
    ]  # fmt: skip
    scored = [trial for trial in trials if trial["score"] is not None]
    champion = {
        **scored[-1], "level": "provisional", "estimate": {"level": 33.0, "se": 4.0, "run_sd": 5.0}
    }  # fmt: skip
    return {
        "campaign": "n-1", "state": "finished", "reason": "all done", "metric": "loss", "direction": "maximize",
        "step_budget": "", "cores": 1, "fidelity": {"share": 1.0, "words": ""},
        "baseline": scored[0], "champion": champion, "spec": {"rule": "certify"},
        "shipped": None, "shipped_trial": None, "certificate": None, "uncertified": None, "ablation": [], "transfers": [], "elsewhere": None, "cancelled": NOTHING_CANCELLED, "trials": trials, "waiting_to_record": 0, "urls": {}, "servers": [],
        "sources": [], "predictions": None, "fallbacks": 0, "incidents": [], "waiting": [], "inbox": [], "imported": None,
        "spent": {"seconds": 60.0, "slots": {}, **NO_MONEY}, **more,
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


def test_short_trials_are_told_apart_and_ranked_among_themselves() -> None:
    found = document(8) | {"fidelity": {"share": 0.3, "words": "fidelity = 0.3: new points run for 30% of the budget"}}
    for number, promoted in ((3, None), (4, 7), (5, None)):
        found["trials"][number] |= {"share": 0.3, "verdict": "discard", "comparable": False, "promoted": promoted}
    text = printed(partial(tables.campaign_table, found), 160)
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()[:1] and line.split()[0].isdigit()}
    assert "discard 30% " in rows["3"] and "discard 30% → 7" in rows["4"] and "30%" not in rows["6"]
    assert "elsewhere" not in text and "compares with those alone" in text
    assert "●···············" in rows["3"] and "···············●" in rows["5"], "no tick: the baseline ran in full"
    assert "new points run for 30%" in printed(partial(overview.outcome, found), 160)


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
    assert "its true mean is likely between 25 and 41" in text and "kept because: " in text
    assert UNPROVEN in text


def test_a_champion_that_is_the_baseline_is_said_to_stand() -> None:
    text = printed(lambda console: overview.outcome(document(1), console))
    assert "the baseline stands: loss 0; nothing that was tried was kept" in text


def test_a_campaign_without_a_score_says_why() -> None:
    found = document(1, reason=EVIL, baseline=None, champion=None, state="failed")
    text = printed(lambda console: overview.outcome(found, console))
    assert "No trial has a score yet." in text
    assert r"[bold red]alert[/] \x1b[2J" in text and "\x1b" not in text


def test_the_line_of_a_crash_begins_with_the_error_and_ends_with_the_remedy() -> None:
    reason = "exited with status 1\n| Traceback\n| OSError: [Errno 13] Permission denied: '/data'\n(sandbox bwrap: see)"
    crash = tried((decided((), 1.0, PARAMS),), None)
    crash = dataclasses.replace(crash, verdict=dataclasses.replace(crash.verdict, reason=reason))
    said = "OSError: [Errno 13] Permission denied: '/data' (exited with status 1) (sandbox bwrap: see)"
    assert terminal.short_reason(crash) == said
    silent = dataclasses.replace(crash, verdict=dataclasses.replace(crash.verdict, reason="left nothing\n(see `out`)"))
    assert terminal.short_reason(silent) == "left nothing (see `out`)"


def test_what_to_open_is_listed_whole(tmp_path: Path) -> None:
    urls = {
        "prefect": "http://p/1", "mlflow_command": "X=1 mlflow ui --port 5000", "mlflow_path": "/#/a?k=" + "f" * 64,
        "mlflow_nights_path": "/#/nights",
    }  # fmt: skip
    text = printed(lambda console: overview.what_next(document(urls=urls), tmp_path, console), 60)
    assert "http://127.0.0.1:5000/#/a?k=" + "f" * 64 in text and "http://127.0.0.1:5000/#/nights" in text
    assert all(name not in text for name in ("progress.png", "report.html", "http://p/1")), "not there any more, or yet"
    for name in ("progress.png", "report.html"):
        (tmp_path / name).touch()
    running = document(state="running", urls={**urls, "mlflow_url": "http://m/1"})
    text = printed(lambda console: overview.what_next(running, tmp_path, console), 60)
    assert all(step in text for step in (f"{tmp_path}/progress.png", f"{tmp_path}/report.html", "http://p/1"))


def test_an_address_of_a_tracking_server_needs_no_command(tmp_path: Path) -> None:
    urls = {"mlflow_url": "http://m/1", "mlflow_nights_url": "http://m/2"}
    text = printed(lambda console: overview.what_next(document(urls=urls), tmp_path, console))
    assert "mlflow       http://m/1\n    campaigns  http://m/2\n" in text


def test_variables_are_told_only_for_servers_that_have_the_campaign(tmp_path: Path) -> None:
    servers = [
        {"name": name, "url": url, "login": str(tmp_path / "auth")}
        for name, url in (("prefect", "http://h:42/api"), ("mlflow", "http://h:50"))
    ]
    urls = {"prefect": "http://h:42/flow-runs/1", "mlflow_url": "http://h:5000/1"}
    text = printed(lambda console: overview.what_next(document(urls=urls, servers=servers), tmp_path, console))
    assert "PREFECT_API_URL=http://h:42/api" in text and "MLFLOW_TRACKING_URI" not in text


def summary(name: str, **more: Any) -> dict[str, Any]:
    base = {"campaign": name, "environment": "lunar_lander", "state": "interrupted", "trials": 300}
    return base | {"baseline": {"score": -81.0}, "champion": None, "created": 2e9} | more


@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_of_campaigns_fits_and_cuts_no_name(width: int) -> None:
    names = [f"lunar_lander-nightly-2026-11-22T07:30:00-{end}" for end in ("first", "second", "日本")]
    rows = [summary(name, environment="/srv/problems/" + "x" * 60) for name in names]
    text = printed(partial(tables.campaigns_table, rows), width, screen=True)
    assert max(map(cell_len, text.splitlines())) <= width and "…" not in text
    assert all(name in text for name in names) == (width > 60), "in a narrower window they go on in the next line"


def test_in_a_pipe_the_list_has_every_column_whole_and_no_colour() -> None:
    names = [f"a-campaign-whose-name-is-long-{number}" for number in range(2)]
    rows = [summary(name, environment="/srv/problems/" + "x" * 90, state="failed") for name in names]
    text = printed(partial(tables.campaigns_table, rows), 80)
    for row, name in zip(text.split("\n")[-4:-2], names, strict=True):
        assert row.split() == [name, "failed", "300", "-81", "-", rows[0]["environment"], "2033-05-18", row.split()[-1]]
    assert "\x1b" not in text


def test_states_are_coloured_on_a_terminal() -> None:
    with terminal_of(80) as (console, written):
        terminal.put(console, tables.campaigns_table([summary("a", state="running"), summary("b")], console))
    text = b"".join(written)
    assert b"32mrunning" in text and b"33minterrupted" in text


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
    assert "learning_rate=0.0016" in shown and "num_envs 8 > 32" in shown and "==" in shown and "/??/" in shown


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
