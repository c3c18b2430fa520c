"""Sites that stand in for answers given many times, beside sums over a fine grid."""

import numpy as np
import pytest

from prefkin.inference.propagation import Sites, refine


def on_a_grid(mean, variance, power):
    """Mean and variance of m under σ(m)ᵖ N(m; mean, variance)."""
    spread = np.sqrt(variance)
    m = np.union1d(np.linspace(mean - 14 * spread, mean + 14 * spread, 100_001), np.linspace(-60.0, 70.0, 100_001))
    log = -power * np.logaddexp(0.0, -m) - 0.5 * (m - mean) ** 2 / variance
    weight = np.exp(log - log.max()) * np.gradient(m)
    middle = weight @ m / weight.sum()
    return middle, weight @ (m - middle) ** 2 / weight.sum()


@pytest.mark.parametrize("power", [0.1, 0.5, 2.0, 100.0, 288.0])
@pytest.mark.parametrize("variance", [0.1, 10.0, 1e4])
def test_answers_given_many_times_have_the_moments_of_a_grid(power, variance):
    means = np.array([-60.0, -5.0, 0.0, 5.0, 60.0, 300.0])  # at 300 ± 100 a few of all margins see the cliff of σᵖ
    nothing = Sites(*np.zeros((4, len(means))))
    site = refine(nothing, np.full(len(means), power), means, np.full(len(means), variance))
    for k, mean in enumerate(means):
        middle, spread = on_a_grid(mean, variance, power)
        found = 1.0 / (1.0 / variance + site.precision[k])
        assert found == pytest.approx(spread, rel=2e-3)
        assert found * (mean / variance + site.pull[k]) == pytest.approx(middle, abs=2e-3 * np.sqrt(spread))


@pytest.mark.parametrize("far", [2.7e7, 2.7e8])
def test_answers_that_contradict_what_others_say_by_far_are_matched_where_the_two_meet(far):
    """Where all bends at once, within a few units of 0, and not where a normal law so wide bends."""
    mean, variance, power = np.array([-far]), np.array([3.5 * far]), np.array([1e6])
    site = refine(Sites(*np.zeros((4, 1))), power, mean, variance)
    middle, spread = on_a_grid(mean[0], variance[0], power[0])
    found = 1.0 / (1.0 / variance + site.precision)
    assert found[0] == pytest.approx(spread, rel=2e-3)
    assert (found * (mean / variance + site.pull))[0] == pytest.approx(middle, abs=2e-3 * np.sqrt(spread))
