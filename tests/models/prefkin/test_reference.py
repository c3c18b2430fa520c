"""Posteriors of a few people beside importance sampling under the same prior, which shares no code."""

import numpy as np
import pytest

from prefkin.inference.quadratics import Signed
from prefkin.models.prefkin.degrees import fit_degrees
from tests.oracles.sampled import by_importance, small_problem


@pytest.mark.parametrize("kind", ["plain", "repeats", "certain"])
def test_posteriors_are_the_sampled_ones_but_for_what_propagation_leaves_out(kind):
    rng = np.random.default_rng([14, len(kind)])
    for _ in range(8):
        people = small_problem(rng, kind)
        starts = np.concatenate([[0], np.cumsum([len(weights) for _, weights in people])])
        fit = fit_degrees(Signed(*(np.concatenate(part) for part in zip(*people, strict=True)), starts))
        sampled = by_importance(people, fit.prior.within, fit.prior.top, rng)
        spread = np.sqrt(np.einsum("uii->ui", sampled.covariance))
        found = np.array([np.diag(fit.person(u).covariance()) for u in range(len(people))])
        assert (np.abs(fit.mean - sampled.mean) <= 0.2 * spread + 4.0 * sampled.error).all()
        assert (found / spread**2).min() >= 0.5
        assert (found / spread**2).max() <= 1.5
        assert fit.evidence <= 0.0
