"""The exact sum against brute force, and the paper's Lemma 2 where it holds."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.retained import papers_retention, retained
from s3t.orders import Setting, cyclic, cyclic_adjacent, full, random_orders
from s3t.planning.bounds import full_budget_depth
from tests.orders.test_selectors import priors


def by_enumeration(orders, deletions, probabilities):
    """P[depth >= k], by going through every history."""
    slices = len(probabilities)
    found = np.zeros(slices + 1)
    for hits in itertools.product(range(slices), repeat=deletions):
        depths = [next((k for k, index in enumerate(order) if index in hits), slices) for order in orders]
        found[: max(depths) + 1] += math.prod(probabilities[index] for index in hits)
    return found


@st.composite
def shards(draw, most_slices=4):
    slices = draw(st.integers(1, most_slices))
    budget = draw(st.integers(1, math.factorial(slices)))
    prior = draw(priors(slices))
    return random_orders(Setting(slices=slices, budget=budget, seed=draw(st.integers(0, 9)))), prior


@settings(max_examples=40)
@given(shards(), st.integers(0, 4))
def test_it_is_the_sum_over_all_histories(shard, deletions):
    orders, prior = shard
    probabilities = prior or (1 / len(orders[0]),) * len(orders[0])
    found = retained(orders, [deletions], prior=prior)
    assert found.exact
    assert found.probabilities[0] == pytest.approx(by_enumeration(orders, deletions, probabilities), abs=1e-9)


def test_a_shard_of_more_slices_than_a_word_has_bits_is_summed_exactly():
    orders = cyclic(Setting(slices=70, budget=5))
    found = retained(orders, [1, 3])
    assert found.exact
    assert found.probabilities[0] == pytest.approx(
        [1 - max(5 * k - 4 * 70, 0) / 70 if k > 56 else 1 for k in range(71)], abs=1e-9
    )
    simulated = retained(orders, [3], terms=0, trials=20_000)
    assert simulated.expected_depth == pytest.approx(found.expected_depth[1:], abs=0.5)


def test_designs_numbers_for_adjacent_and_spaced_rotations():
    for selector, expected in ((cyclic_adjacent, [10.1, 7.2, 4.6, 2.7]), (cyclic, [13.5, 9.5, 6.0, 3.2])):
        found = retained(selector(Setting(slices=16, budget=4)), [1, 2, 4, 8])
        assert found.exact
        assert found.expected_depth == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("prior", [None, (0.5, 0.25, 0.25, 0.0)])
def test_no_orders_keep_more_than_all_of_them(prior):
    found = retained(full(Setting(slices=4, budget=24)), [0, 1, 3, 7], prior=prior).expected_depth
    assert found == pytest.approx(full_budget_depth([0, 1, 3, 7], prior or [0.25] * 4), abs=1e-9)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_lemma_2_is_exact_for_a_single_order(depth):
    assert papers_retention(4, 1, depth, 3) == pytest.approx(retained(((0, 1, 2, 3),), [3]).probabilities[0, depth])


def test_lemma_2_is_neither_a_bound_above_nor_below_for_rotations():
    """It takes orders as if they were hit independently of each other."""
    rotations = retained(cyclic(Setting(slices=4, budget=4)), [3]).probabilities[0]
    assert papers_retention(4, 4, 1, 3) < rotations[1]
    adjacent = retained(cyclic_adjacent(Setting(slices=8, budget=3)), [3]).probabilities[0]
    assert papers_retention(8, 3, 4, 3) > adjacent[4]


def test_orders_with_too_many_tops_are_simulated_at_once():
    # Inclusion-exclusion over 40 tops has 2^40 terms: it is not begun with the deeper prefixes either.
    assert not retained(cyclic(Setting(slices=300, budget=40)), [1], trials=10).exact


@pytest.mark.parametrize(("budget", "terms", "exact"), [(3, 6, True), (3, 5, False), (2, 3, True), (2, 2, False)])
def test_the_number_of_terms_bounds_the_unions_of_the_tops(budget, terms, exact):
    # Of three slices: three tops have 7 unions, less that of all; two have 3.
    assert retained(cyclic(Setting(slices=3, budget=budget)), [1], terms=terms, trials=10).exact is exact
