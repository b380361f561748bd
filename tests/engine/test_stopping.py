"""Guards: each one alone, their order, and that a night ends within its hours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import environments
from environments import Environment
from flows.engine.stopping import Stop, stop
from flows.spec.campaign_spec import CampaignSpec
from flows.spec.spec import Advanced
from tasks.stats.certificate import REUSED
from tests.support.histories import decided, minimised
from tests.support.toy import quadratic

HOUR = 3600.0


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A budget of 5 s, and 2 s to start up; lower is better."""
    return environments.load(quadratic(tmp_path / "quad"))


def spec(**parameters: object) -> CampaignSpec:
    """A campaign that proves nothing at its end, unless it is asked to."""
    return CampaignSpec.of(**{"environment": "quad", "name": "n", "rule": "greedy", **parameters})


@pytest.mark.parametrize(("trials", "ends"), [(3, None), (2, "all 2 trials done"), (1, "all 2 trials done")])
def test_the_baseline_does_not_count_as_a_trial(environment: Environment, trials: int, ends: str | None) -> None:
    assert stop(spec(), environment, (), 0.0) is None, "it has just begun"
    found = stop(spec(trials=trials), environment, minimised(3, 2, 1), 0.0)
    assert found == (Stop("finished", ends) if ends else None)


@pytest.mark.parametrize(
    ("scores", "ends"),
    [((3, 4, 4), True), ((3, 4), False), ((3, 2, 4), False), ((3, 2, 4, 2), True), ((3, 4, None), True)],
)
def test_patience_counts_the_trials_since_the_champion(
    environment: Environment, scores: tuple[float | None, ...], ends: bool
) -> None:
    found = stop(spec(advanced=Advanced(patience=2)), environment, minimised(*scores), 0.0)
    assert found == (Stop("finished", "nothing better in the last 2 trials") if ends else None)


@pytest.mark.parametrize(
    ("scores", "ends"),
    [
        ((3, *(None,) * 3), None),
        ((3, *(None,) * 4), None),
        ((3, *(None,) * 5), "5 of the last 6 trials crashed"),
        ((*(3,) * 20, *(None,) * 8), None),
        ((*(3,) * 20, *(None,) * 9), "9 of the last 10 trials crashed"),
        ((3, *(None,) * 4, *(3,) * 20), None),
    ],
)
def test_a_campaign_fails_when_too_many_of_its_last_ten_trials_crash(
    environment: Environment, scores: tuple[float | None, ...], ends: str | None
) -> None:
    found = stop(spec(trials=100), environment, minimised(*scores), 0.0)
    assert (found and found.state) == ("failed" if ends else None)
    assert found is None or found.reason.startswith(f"{ends}: ")


@settings(derandomize=True, deadline=None, max_examples=70)
@given(
    hours=st.floats(0.01, 8.0),
    budget=st.floats(1.0, 600.0),
    besides=st.lists(st.floats(0.0, 60.0), min_size=1, max_size=60),
    rule=st.sampled_from(["greedy", "certify"]),
)
def test_eight_hours_end_within_eight_hours(
    tmp_path_factory: pytest.TempPathFactory, hours: float, budget: float, besides: list[float], rule: str
) -> None:
    """As long as no trial takes longer than the longest so far, or a run of the baseline than its start-up time."""
    folder = quadratic(tmp_path_factory.getbasetemp() / "hours")
    startup = max(besides) + 0.1
    overrides = {"budget_seconds": budget, "startup_seconds": startup, "deterministic": False}
    environment = environments.load(folder, overrides)
    asked, trials, spent = spec(hours=hours, trials=30, rule=rule), minimised(), 0.0
    slowest_first = [max(besides), *besides]
    while stop(asked, environment, trials, spent) is None and len(trials) < len(slowest_first):
        extra, first = slowest_first[len(trials)], not trials
        trial = decided(trials, 1.0, {}, seconds=budget, wall=budget + extra, higher_is_better=False)
        if first and rule == "certify":  # the baseline is run three times
            trial = replace(trial, runs=3 * trial.runs, wall_seconds=3 * trial.wall_seconds)
        trials += (trial,)
        spent += trial.wall_seconds
    if trials:
        design = asked.certificate_design(environment)
        spent += (design.runs - REUSED) * (budget + max(besides)) if design else 0
    assert spent <= hours * HOUR + 1e-6


@pytest.mark.parametrize("scores", [(None,), (None, 3.0), (None, None)])
@pytest.mark.parametrize("parameters", [{}, {"trials": 1}, {"hours": 0.001}, {"until": "2001-01-01T00:00"}])
def test_a_crashed_baseline_ends_a_campaign_at_once_with_its_log_and_the_remedy(
    environment: Environment, parameters: dict[str, object], scores: tuple[float | None, ...]
) -> None:
    first, *rest = minimised(*scores)
    log = "run 1 of 2: exited with status 3\nTraceback:\n  File\n\nValueError: no GPU here"
    trials = (replace(first, score=replace(first.score, error=log)), *rest)
    found = stop(spec(**parameters), environment, trials, 0.0)
    assert found is not None and found.state == "failed"
    assert found.reason.startswith(
        "the baseline crashed, so there is nothing to compare with: run 1 of 2: exited with "
    )
    assert "ValueError: no GPU here" in found.reason
    assert "`nightshift rerun n 0`" in found.reason and "\n" not in found.reason
