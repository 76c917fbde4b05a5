"""The Pólya distribution's likelihood against SciPy's beta-binomial, and its sums against sums."""

import numpy as np
import pytest
from scipy.special import polygamma
from scipy.stats import betabinom

from network.partition.polya import Likelihood, _curvature, _rise, _slope, _trigamma
from tests.network.partition.test_equivalent_alpha import drawn


def test_of_two_groups_the_likelihood_is_the_beta_binomials() -> None:
    counts, p = drawn(0.7, 9, 25, 2, seed=0), np.array([0.3, 0.7])
    found = np.diff([Likelihood(counts).value(s, p) for s in (0.2, 3.0, 50.0)])
    known = [betabinom.logpmf(counts[:, 0], counts.sum(axis=1), s * p[0], s * p[1]).sum() for s in (0.2, 3.0, 50.0)]
    assert found == pytest.approx(np.diff(known), abs=1e-9)


@pytest.mark.parametrize("a", [1e-3, 0.7, 40.0, 9e4, 1e9])
def test_sums_of_any_size_are_exact(a: float) -> None:
    n = np.array([1, 2, 30, 89])
    for function, term in (
        (_rise, lambda j: np.log1p(j / a)),
        (_slope, lambda j: a / (a + j)),
        (_curvature, lambda j: (a / (a + j)) ** 2),
    ):
        known = [term(np.arange(each)).sum() for each in n]
        assert function(np.array([1.0, a]), np.ones(4, int), n) == pytest.approx(known, rel=1e-8, abs=1e-12)


def test_the_trigamma_function_is_scipys() -> None:
    x = np.geomspace(1e-8, 1e9, 200)
    assert _trigamma(x) == pytest.approx(polygamma(1, x), rel=1e-10)
