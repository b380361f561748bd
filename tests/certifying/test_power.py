"""The power of a certificate: that of the test which is run, for normal scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.certifying.power import POWER, RATIO, Arms, detectable, power
from tasks.deciding.statistics import welch


@pytest.mark.parametrize("ratio", [1.0, RATIO, 0.5])
@pytest.mark.parametrize(
    ("arms", "gain", "alpha"),
    [((2, 2), 4.0, 0.05), ((3, 3), 2.5, 0.05), ((5, 3), 1.5, 0.0125), ((10, 4), 1.0, 0.05), ((5, 5), 0.0, 0.05)],
)
def test_power_is_what_simulated_certificates_come_to(arms: Arms, gain: float, alpha: float, ratio: float) -> None:
    draw = np.random.default_rng(2)
    champion, baseline = draw.normal(gain, ratio, (1000, arms[0])), draw.normal(0, 1, (1000, arms[1]))
    passed = [welch(now, before, floor=0.5).p <= alpha for now, before in zip(champion, baseline, strict=True)]
    expected = power(arms, gain, 1.0, ratio, alpha)
    assert np.mean(passed) == pytest.approx(expected, abs=3.5 * (expected * (1 - expected) / 1000) ** 0.5 + 0.002)


def test_without_a_gain_power_is_at_most_the_level_and_it_grows_with_gain_and_runs() -> None:
    for runs in (2, 3, 5, 10):
        assert 0 < power((runs, runs), 0.0, 1.0) <= power((runs, runs), 0.0, 1.0, RATIO) <= 0.05
    gains = [power((4, 4), gain, 1.0) for gain in (-1.0, 0.0, 0.5, 1.0, 2.0, 4.0)]
    several = [power((runs, runs), 1.0, 1.0) for runs in (2, 3, 5, 10, 30)]
    assert gains == sorted(gains) and several == sorted(several)
    assert power((4, 4), 2.0, 1.0, RATIO) < power((4, 4), 2.0, 1.0)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(runs=st.integers(2, 40), sd=st.floats(1e-6, 1e6), gain=st.floats(-3, 6))
def test_only_the_gain_in_sds_counts(runs: int, sd: float, gain: float) -> None:
    assert power((runs, runs), gain * sd, sd) == pytest.approx(power((runs, runs), gain, 1.0), abs=1e-9)


@pytest.mark.parametrize(("gain", "sure"), [(0.1, 1.0), (0.0, 0.0), (-0.1, 0.0)])
def test_without_noise_any_gain_shows_and_nothing_else(gain: float, sure: float) -> None:
    assert power((2, 2), gain, 0.0) == sure
    assert detectable((3, 3), 0.0) == 0.0


@pytest.mark.parametrize("arms", [(2, 2), (5, 3), (10, 4), (30, 30)])
@pytest.mark.parametrize("sd", [1e-6, 1.0, 1e4])
def test_what_is_detectable_has_just_the_power_that_is_asked_for(arms: Arms, sd: float) -> None:
    gain = detectable(arms, sd)
    assert power(arms, gain, sd) == pytest.approx(POWER, abs=1e-6)
    assert detectable((arms[0] + 1, arms[1] + 1), sd) < gain < detectable(arms, sd, RATIO)
    assert gain / sd == pytest.approx(detectable(arms, 1.0))
