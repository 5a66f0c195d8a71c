"""Integrals over all times, on any scale, or an error."""

import math

import numpy as np
import pytest

from s3t.planning.quadrature import integral


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e12, 1e100])
def test_an_exponential_is_integrated_on_every_scale(scale):
    assert integral(lambda times: np.exp(-times / scale), end=40 * scale) == pytest.approx(scale, rel=1e-12)


@pytest.mark.parametrize("number", [1, 30, 10_000])
def test_the_last_of_many_clocks_rings_after_a_harmonic_number(number):
    last = integral(lambda times: -np.expm1(number * np.log1p(-np.exp(-times))), end=40 + math.log(number))
    assert last == pytest.approx(math.fsum(1 / index for index in range(1, number + 1)), rel=1e-11)


def test_what_does_not_converge_is_an_error():
    noise = np.random.default_rng(0)
    with pytest.raises(ArithmeticError, match="no agreement"):
        integral(lambda times: noise.random(len(times)) * np.exp(-times), end=40.0)
