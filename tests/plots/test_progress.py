"""The progress picture, as it is rendered: what is where, that it can be read, and that nothing covers anything."""

from __future__ import annotations

import functools
import io
import itertools
import math
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from tasks.plots.data import POINTS, estimates, plotted, visible

from tasks.certifying.certificate import Certificate
from tasks.describe import changes, headline, level_of
from tasks.numbers import number
from tasks.plots.progress import HEIGHT, WIDTH, draw, png
from tasks.trial import History, Params, best
from tasks.verdict_styles import VERDICTS
from tests.support.histories import certified, search, tried
from tests.support.outcomes import Outcome, night, trial_of

if TYPE_CHECKING:  # every worker of a test run collects every file
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

NAME = "lunar_lander-3"


def climb(count: int, seed: int = 1) -> list[Outcome]:
    """Scores that rise from -81 as those of a search do, with some trials cancelled or crashed."""
    draws = random.Random(seed)
    found: list[Outcome] = [-81.0]
    for index in range(1, count):
        score = -81 + 280 * (1 - math.exp(-index / 15)) + draws.gauss(0, 60)
        fate = draws.random()
        found.append("crash" if fate < 0.07 else ("cancelled", score) if fate < 0.2 else score)
    return found


NIGHTS: dict[str, Callable[[], History]] = {
    "one trial": lambda: night(climb(1)),
    "two trials": lambda: night([-81.0, 42.0]),
    "a demo": lambda: night([-81.0, -150.0, 42.0, -210.0, 213.0, 168.0, "crash", -60.0, 190.0]),
    "60 trials": lambda: night(climb(60)),
    "300 trials": lambda: night(climb(300)),
    "every trial better": lambda: night([100.0 + score for score in range(60)], error=0.5),
    "scores almost equal": lambda: night([0.9 + 1e-5 * (i % 7) + 1e-6 * i for i in range(40)], error=1e-6),
    "scores exactly equal": lambda: night([500.0] * 12, error=0.0),
    "one far out": lambda: night([-1e6 if i == 5 else o for i, o in enumerate(climb(20))]),
    "the baseline far out": lambda: night([-1e6, *climb(20)]),
    "every trial crashed": lambda: night(["crash"] * 7),
    "lower is better": lambda: night(
        [2.25 * math.exp(-i / 10) + 0.3 * (i % 3) for i in range(30)], up=False, error=0.1
    ),
    "lower is better, some far out": lambda: night([2.0, 1e6, 1.5, 1.4, 1e5, 1.3, 1.6, 1.2, 1.0], up=False, error=0.1),
    "long names": lambda: night(climb(25), prefix="a_very_long_name_of_a_parameter_that_never_ends_"),
    "a baseline that crashed": lambda: night(["crash", "crash", 30.0, 20.0, 50.0]),
    "errors as large as the scores": lambda: night(climb(12), error=300.0),
    "three runs of the baseline": lambda: search(0),
    "60 trials, some cancelled": lambda: search(60),
    "30 trials, some cancelled, lower is better": lambda: search(30, sign=-1),
    "all cancelled": lambda: night([-81.0, *[("cancelled", float(i)) for i in range(6)], "cancelled"]),
}


CERTIFICATES: dict[str, Callable[[], tuple[History, Certificate]]] = {
    "passed": lambda: (search(8), certified(7, [190, 205, 182], [84, 70, 95])),
    "not passed": lambda: (search(60), certified(33, [120, 85, 99, 70, 101], [84, 70, 95, 90, 81])),
    "lower is better": lambda: (
        search(30, sign=-1),
        certified(7, [-150, -150, -151, -149], [-80, -82, -84, -83], higher_is_better=False),
    ),
    "a champion that crashes": lambda: (search(8), certified(7, [190, None, None], [84, 70, 95])),
    "nothing but crashes": lambda: (search(8), certified(7, [None, None], [None, None])),
    "without any spread": lambda: (search(8), certified(7, [190, 190], [84, 84])),
    "far below the search": lambda: (search(20), certified(7, [-90_000, 85, 99, 70], [84, 70, 95, 90])),
    "a champion of four digits": lambda: (search(1200, cancels=False), certified(1199, [190, 180], [84, 70])),
}
"""Made by the tests that ask for one: every worker of a test run collects every file."""


@functools.cache
def history_of(night: str) -> History:
    return NIGHTS[night]()


@functools.cache
def proof_of(certificate: str) -> tuple[History, Certificate]:
    return CERTIFICATES[certificate]()


def drawn(history: History, name: str = NAME, certificates: Sequence[Certificate] = ()) -> Figure:
    up = all(trial.score.higher_is_better for trial in history)
    return draw(history, name, metric="return/mean", higher_is_better=up, certificates=certificates)


@functools.cache
def picture_of(night: str) -> Figure:
    """The picture of one of NIGHTS, which several tests look at and none changes."""
    return drawn(history_of(night))


@functools.cache
def picture_with(certificate: str) -> Figure:
    """The same of one of CERTIFICATES."""
    history, proof = proof_of(certificate)
    return drawn(history, certificates=[proof])


def texts(picture: Figure, gid: str) -> list[Text]:
    return [text for text in picture.axes[0].texts if text.get_gid() == gid]


def boxes(found: Sequence[Text]) -> list[Bbox]:
    return [text.get_window_extent() for text in found]


def within(inner: Bbox, outer: Bbox) -> bool:
    return bool(outer.x0 <= inner.x0 and inner.x1 <= outer.x1 and outer.y0 <= inner.y0 and inner.y1 <= outer.y1)


@pytest.mark.parametrize("night", NIGHTS)
def test_no_two_labels_overlap_and_all_lie_within_the_axes(night: str) -> None:
    picture = picture_of(night)
    labels = boxes(texts(picture, "label"))

    assert [pair for pair in itertools.combinations(labels, 2) if pair[0].overlaps(pair[1])] == []
    assert [box for box in labels if not within(box, picture.axes[0].get_window_extent())] == []


@pytest.mark.parametrize("night", NIGHTS)
def test_no_label_covers_a_mark(night: str) -> None:
    history, picture = history_of(night), picture_of(night)
    labels = boxes(texts(picture, "label"))
    marks = [
        spot
        for line in picture.axes[0].lines
        if line.get_marker() in {shown.plot["marker"] for shown in VERDICTS.values()}
        for spot in picture.axes[0].transData.transform(line.get_xydata())
    ]

    assert len(marks) == len(history) - off_scale(picture)
    assert [spot for spot in marks for box in labels if box.contains(*spot)] == []


def off_scale(picture: Figure) -> int:
    return sum(str(line.get_marker()).startswith("$") for line in picture.axes[0].lines)


@pytest.mark.parametrize("night", NIGHTS)
def test_what_stands_around_the_axes_is_whole_and_apart(night: str) -> None:
    check_what_stands_around(picture_of(night))


@pytest.mark.parametrize("certificate", CERTIFICATES)
def test_what_stands_around_a_certificate_is_whole_and_apart(certificate: str) -> None:
    check_what_stands_around(picture_with(certificate))


def check_what_stands_around(picture: Figure) -> None:
    around = boxes([*picture.texts, *texts(picture, "margin")])
    around += [picture.legends[0].get_window_extent()]
    around += [box for box in boxes(picture.axes[0].get_yticklabels()) if box.width]
    around += [box for axes in picture.axes[1:] for box in boxes([*axes.get_xticklabels(), *axes.texts])]

    assert [box for box in around if not within(box, picture.bbox)] == []
    assert [pair for pair in itertools.combinations(around, 2) if pair[0].overlaps(pair[1])] == []


@pytest.mark.parametrize("certificate", CERTIFICATES)
def test_every_fresh_run_is_drawn_in_a_column_of_its_own(certificate: str) -> None:
    (main, column), runs = picture_with(certificate).axes, proof_of(certificate)[1].runs
    spots = {
        mark: [y for line in column.lines if line.get_marker() == mark for y in line.get_ydata()] for mark in ("D", "x")
    }

    assert sorted(spots["D"]) == sorted(fresh.score.value for fresh in runs if fresh.score.value is not None)
    assert len(spots["x"]) == len(runs) - len(spots["D"])
    assert column.get_ylim() == main.get_ylim()
    assert main.get_position().x1 < column.get_position().x0


def test_beside_a_certificate_stand_the_means_of_its_fresh_runs() -> None:
    history, certificate = proof_of("passed")
    picture = drawn(history, certificates=[certificate])

    assert [text.get_text() for text in texts(picture, "margin")] == [
        "192.3", "trial 7, fresh", "83", "baseline, fresh",
    ]  # fmt: skip
    assert "certified: 192.3 against the baseline's 83 on fresh runs" in picture.texts[0].get_text()
    assert "the test's interval" in legend(picture)


def test_the_line_is_the_champion_estimate() -> None:
    history = search(60)
    picture = drawn(history)
    line = next(line for line in picture.axes[0].lines if line.get_drawstyle() == "steps-post")

    assert line.get_ydata()[-1] == level_of(history)


def test_the_level_of_a_long_history_is_asked_at_some_places_alone() -> None:
    history = search(700, cancels=False)
    found = estimates(history)

    assert len(found) <= POINTS + 1
    assert (found[0, 0], found[-1, 0]) == (0, 700)


def test_a_trial_of_several_runs_stands_at_their_mean_with_its_error_over_runs() -> None:
    first = tried((), 80.0, 86.0)
    again = tried((first,), 90.0, kind="discard", reruns=[(0, 92.0), (1, 96.0)])
    baseline_, later = plotted((first, again))

    assert (baseline_.at, baseline_.runs, baseline_.error) == (86.0, 3, pytest.approx(6 / math.sqrt(3)))
    assert (later.at, later.runs, later.error) == (93.0, 2, pytest.approx(3.0))
    assert "±1 se over runs" in legend(drawn((first, again)))


def test_every_new_champion_is_labelled_where_there_is_room() -> None:
    picture = picture_of("a demo")

    assert sorted(
        text.get_text().splitlines()[0] for text in texts(picture, "label") if "trial" in text.get_text()
    ) == ["trial 2", "trial 4"]


def test_of_300_trials_only_champions_are_labelled() -> None:
    history = history_of("300 trials")
    crowned = {f"trial {trial.number}" for trial in history if trial.verdict.kind == "keep"}
    headings = {text.get_text().splitlines()[0] for text in texts(picture_of("300 trials"), "label")}

    assert headings
    assert headings <= crowned


def test_the_last_champion_is_named_beside_its_line_whatever_the_room() -> None:
    beside = [text.get_text() for text in texts(picture_of("every trial better"), "margin")]

    level = number(level_of(history_of("every trial better")))
    assert beside == [level, "champion: trial 59", "100", "baseline"]


def test_a_trial_far_out_does_not_flatten_the_others() -> None:
    history = history_of("one far out")
    window = visible(plotted(history), higher_is_better=True)
    scores = [trial.score.value for trial in history if trial.score.value is not None and trial.score.value > -1e6]

    assert -1e6 not in window
    assert all(score in window for score in scores)
    assert max(scores) - min(scores) > 0.5 * (window.high - window.low)


def test_what_is_off_the_scale_is_marked_and_said() -> None:
    picture = picture_of("one far out")

    assert off_scale(picture) == 1
    assert "off scale: trial 5 at −1e+06" in legend(picture)  # noqa: RUF001 (the sign is what is meant)


def legend(picture: Figure) -> list[str]:
    return [text.get_text() for text in picture.legends[0].get_texts()]


def test_a_long_climb_from_the_baseline_is_shown_whole() -> None:
    history = night([-1000.0, -900.0, 200.0, 210.0, 190.0, 205.0, 200.0, 215.0, 195.0, 208.0])

    assert -1000.0 in visible(plotted(history), higher_is_better=True)


@pytest.mark.parametrize("night", NIGHTS)
def test_the_champion_is_always_on_the_scale(night: str) -> None:
    history = history_of(night)
    champion = best(history)

    if champion is not None and champion.score.value is not None:
        assert champion.score.value in visible(plotted(history), champion.score.higher_is_better)


def test_every_verdict_has_a_shape_of_its_own() -> None:
    shapes = [shown.plot["marker"] for shown in VERDICTS.values()]

    assert len(set(shapes)) == len(VERDICTS) == 4


def test_the_legend_names_only_what_occurs_and_says_what_the_bars_are() -> None:
    level = ["champion estimate", "±1 sd between runs"]
    assert legend(picture_of("two trials")) == ["kept", *level, "±1 se over 16 episodes"]
    assert legend(picture_of("every trial crashed")) == ["crashed"]


def test_a_cancelled_trial_lies_at_its_last_report_and_else_with_the_crashes() -> None:
    picture = drawn(night([-81.0, ("cancelled", 42.0), "cancelled", "crash"]))
    found = {line.get_marker(): line for line in picture.axes[0].lines}
    (_, reported), (_, unknown) = found["v"].get_xydata()
    ((_, crashed),) = found["x"].get_xydata()

    assert reported == 42.0
    assert unknown == crashed < -81.0
    assert found["v"].get_markerfacecolor() == "white"


def test_trials_stand_in_the_order_in_which_they_were_decided() -> None:
    picture = picture_of("a demo")
    xs = sorted(
        x for line in picture.axes[0].lines if line.get_marker() in {"o", "s", "v", "x"} for x in line.get_xdata()
    )

    assert xs == list(range(9))


def test_equal_histories_make_equal_bytes() -> None:
    history = history_of("a demo")
    one, two = (png(draw(history, NAME, metric="loss", higher_is_better=True)) for _ in range(2))

    assert one == two


@pytest.mark.parametrize("night", ["one trial", "300 trials"], ids=["one", "300"])
def test_it_is_a_png_of_the_stated_size_on_white_that_fits_into_a_document(night: str) -> None:
    content = png(picture_of(night))
    image = Image.open(io.BytesIO(content))

    assert (image.format, image.size) == ("PNG", (WIDTH, HEIGHT))
    assert np.asarray(image.convert("RGB"))[5, 5].min() >= 253
    assert len(content) < 60_000


@pytest.mark.parametrize("name", ["$x_{", "\\frac", "a\nb", "学习率", "\x1b[31m", "%s", "a|b"])
def test_parameters_may_be_called_anything(name: str) -> None:
    history = night([1.0, 2.0], prefix=name)

    assert png(draw(history, NAME, metric=name, higher_is_better=True))


def test_a_long_name_of_a_campaign_is_set_smaller() -> None:
    title = drawn(history_of("a demo"), name="n" * 64).texts[0]

    assert title.get_window_extent().x1 < WIDTH


@pytest.mark.slow
def test_matplotlib_is_loaded_to_draw_and_pyplot_never() -> None:
    """Which is matplotlib's global state, and no thread's."""
    code = (
        "import sys\nfrom tasks.plots import progress\nfrom tests.support.outcomes import night\n"
        "assert 'matplotlib' not in sys.modules\n"
        "progress.png(progress.draw(night([-81.0, 42.0, 'crash', 30.0]), 'n', metric='m', higher_is_better=True))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )

    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([], "n: no score yet"),
        ([-81.0], "n: baseline -81"),
        ([-81.0, -90.0], "n: baseline -81 stands after 1 trial"),
        ([-81.0, 1.0, 213.0], "n: about 213 after 2 trials, baseline -81; nothing is certified yet"),
        (["crash", 5.0], "n: about 5 after 1 trial, baseline without a score; nothing is certified yet"),
        (["crash", "crash", "crash"], "n: no score yet after 2 trials"),
        ([1.5, 1234567.0], "n: about 1.235e+06 after 1 trial, baseline 1.5; nothing is certified yet"),
    ],
)
def test_the_headline_says_the_result(outcomes: list[Outcome], said: str) -> None:
    assert headline(night(outcomes), "n") == said


def test_a_new_champion_is_described_by_its_largest_changes() -> None:
    old: Params = {"lr": 1e-3, "gamma": 0.99, "layers": 2, "epochs": 4, "same": True}
    new: Params = {"lr": 1e-5, "gamma": 0.98, "layers": 3, "epochs": 8, "same": True}
    first = trial_of((), 1.0, old)

    assert changes(trial_of((first,), 2.0, new), first) == ["lr 0.001 → 1e-05", "epochs 4 → 8", "and 2 more"]
    assert changes(trial_of((first,), 2.0, {**old, "layers": 3}), first) == ["layers 2 → 3"]
    assert changes(first, None) == ["the first with a score"]
    name = "exploration_final_epsilon"
    renamed = trial_of((first,), 2.0, {**old, name: 1})
    assert changes(renamed, first) == [f"{name} - → 1"]
    assert changes(renamed, first, name_width=20) == ["exploratio…l_epsilon - → 1"]
