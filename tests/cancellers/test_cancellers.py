"""Conformance of every canceller: progress against progress, losers ended, winners never; then each one's own ways."""

from __future__ import annotations

import numpy as np
import pytest

from environments import plugins
from environments.score import Score
from tasks.cancellers import Canceller
from tasks.cancellers.curve import ByCurve
from tasks.trial import TWENTIETHS, Curve, History, Proposal, Run, Trial, Verdict, VerdictKind

CANCELLERS = "tasks.cancellers"
NAMES = plugins.names(CANCELLERS)
TIMES = np.arange(1, TWENTIETHS + 1) / TWENTIETHS


def rising(end: float, seed: int = 0, speed: float = 0.25, noise: float = 0.5) -> Curve:
    """Progress that saturates: from 0 to about `end`, with noise in each report."""
    rng = np.random.default_rng(seed)
    shape = (1 - np.exp(-TIMES / speed)) / (1 - np.exp(-1 / speed))
    return tuple(float(value) for value in end * shape + noise * rng.standard_normal(TWENTIETHS))


def mirrored(curve: Curve) -> Curve:
    return tuple(None if value is None else -value for value in curve)


def trial(number: int, *curves: Curve, kind: VerdictKind = "cancelled") -> Trial:
    runs = tuple(Run(f"trials/{number:04d}", number, 10.0, "finished", curve=curve) for curve in curves)
    score = Score.missing("as a test says", higher_is_better=True)
    return Trial(number, 1, number, Proposal({}), runs, score, Verdict(kind, ""))


def night(higher_is_better: bool = True) -> History:
    """Three runs of the baseline at 60, a champion at 100, trials between them, and one that was cancelled."""
    turned = (lambda curve: curve) if higher_is_better else mirrored
    ends = {1: 70.0, 2: 100.0, 3: 65.0, 4: 90.0, 5: 75.0, 6: 80.0}
    first = trial(0, *(turned(rising(60, seed)) for seed in (1, 2, 3)), kind="keep")
    others = [trial(n, turned(rising(end, 10 + n)), kind="keep" if n <= 2 else "discard") for n, end in ends.items()]
    return (first, *others, trial(7, turned(rising(40, 17)[:8])))


def first_due(canceller: Canceller, history: History, curve: Curve, higher_is_better: bool = True) -> int | None:
    """The twentieth at which a run with this curve would be cancelled, asked as the engine asks."""
    asked = range(1, TWENTIETHS)
    return next((n for n in asked if canceller.look(history, curve[:n], higher_is_better)), None)


@pytest.fixture
def canceller(request: pytest.FixtureRequest) -> Canceller:
    return plugins.make(CANCELLERS, request.param, Canceller, {})  # type: ignore[type-abstract]


every_canceller = pytest.mark.parametrize("canceller", NAMES, indirect=True)


@every_canceller
def test_without_a_history_nothing_is_cancelled(canceller: Canceller) -> None:
    assert first_due(canceller, (), rising(1)) is None


@every_canceller
def test_what_has_reported_nothing_is_not_cancelled(canceller: Canceller) -> None:
    assert first_due(canceller, night(), (None,) * TWENTIETHS) is None


@pytest.mark.parametrize("higher_is_better", [True, False], ids=["maximize", "minimize"])
@every_canceller
def test_a_clear_loser_is_cancelled_before_its_end_and_the_reason_has_its_numbers(
    canceller: Canceller, higher_is_better: bool
) -> None:
    history, curve = night(higher_is_better), rising(10, seed=99)
    curve = curve if higher_is_better else mirrored(curve)
    due = first_due(canceller, history, curve, higher_is_better)
    reason = canceller.look(history, curve[:due], higher_is_better)
    assert reason and f"{due / TWENTIETHS:.0%} of its budget" in reason


@pytest.mark.parametrize("higher_is_better", [True, False], ids=["maximize", "minimize"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
@every_canceller
def test_a_clear_winner_is_never_cancelled(canceller: Canceller, seed: int, higher_is_better: bool) -> None:
    curve = rising(130, seed)
    curve = curve if higher_is_better else mirrored(curve)
    assert first_due(canceller, night(higher_is_better), curve, higher_is_better) is None


@pytest.mark.parametrize("up", [True, False])
def test_the_best_by_progress_go_on_and_the_first_all_do(up: bool) -> None:
    def at(value: float) -> Curve:
        return (None,) * 3 + (value if up else -value,)

    def after(*progress: float) -> History:
        first = trial(0, rising(60), kind="keep")
        return (first, *(trial(n, at(value)) for n, value in enumerate(progress, 1)))

    look = ByCurve().look
    assert look(after(10.0, 20.0, 30.0), at(-5.0), up) is None, "too few to compare with"
    history = after(10.0, 20.0, 30.0, 40.0, 50.0)
    assert look(history, at(45.0), up) is None
    assert "where the best 20% of the 5 trials" in str(look(history, at(35.0), up))
    assert look(after(0.0, 0.0, 0.0, 0.0), at(0.0), up) is None, "nobody is ahead"
