"""Coefficients of generating functions: exact, shared among few points, and no harder far out."""

import math

import numpy as np
import pytest

from s3t.planning.coefficients import LARGEST_TRANSFORM, coefficients, odd


def poisson(mean):
    return lambda angles: np.exp(mean * (np.exp(1j * angles) - 1))[np.newaxis]


def test_coefficients_of_a_polynomial_are_exact():
    found = coefficients(
        lambda angles: np.stack([np.exp(2j * angles), 1 + 3 * np.exp(1j * angles)]), np.arange(3), size=5
    )
    np.testing.assert_allclose(found, [[0, 0, 1], [1, 3, 0]], atol=1e-15)


def test_coefficients_a_circle_apart_are_added():
    found = coefficients(lambda angles: 1 + 3 * np.exp(7j * angles)[np.newaxis], np.array([0, 1, 7]), size=7)
    np.testing.assert_allclose(found, [[4, 0, 4]], atol=1e-15)


@pytest.mark.parametrize("mean", [1, 50, 10**6, 10**10])
def test_near_the_mean_a_few_points_are_enough(mean):
    deviation = math.sqrt(mean)
    evaluated = []

    def function(angles):
        evaluated.extend(angles)
        return poisson(mean)(angles)

    counts = np.array([mean, mean + int(deviation)])
    size = odd(12 * deviation + 20)
    found = coefficients(function, counts, size=size)[0]
    expected = [math.exp(count * math.log(mean) - mean - math.lgamma(count + 1)) for count in counts.tolist()]
    # The formula itself loses as many digits as its terms have before the point.
    np.testing.assert_allclose(found, expected, rtol=1e-12 + 1e-15 * mean * math.log(mean + 1))
    assert len(evaluated) <= 64


def test_the_sum_and_the_transform_agree(monkeypatch):
    counts = np.arange(80, 120)
    transformed = coefficients(poisson(100), counts, size=201)
    assert LARGEST_TRANSFORM > 201
    monkeypatch.setattr("s3t.planning.coefficients.LARGEST_TRANSFORM", 0)
    np.testing.assert_allclose(coefficients(poisson(100), counts, size=201), transformed, atol=1e-16)


@pytest.mark.parametrize(("size", "expected"), [(3.0, 3), (4, 5), (4.2, 5), (0.1, 1)])
def test_a_number_of_points_is_odd(size, expected):
    assert odd(size) == expected
