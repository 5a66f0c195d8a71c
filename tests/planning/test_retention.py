"""Simulated retention against the exact sum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.retained import retained
from s3t.orders import Setting, full
from s3t.planning.bounds import full_budget_depth
from s3t.planning.simulation import retention
from tests.experiments.test_retained import shards


@settings(max_examples=25)
@given(shards(most_slices=6), st.integers(1, 8))
def test_it_agrees_with_the_exact_sum_within_its_interval(shard, deletions):
    orders, prior = shard
    exact = retained(orders, [deletions], prior=prior)
    simulated = retention(orders, [deletions], prior=prior, trials=4000)
    assert exact.exact
    assert np.abs(exact.probabilities - simulated).max() < 0.05
    assert abs(exact.expected_depth[0] - simulated[0, 1:].sum()) < 0.2


@pytest.mark.parametrize("prior", [None, (0.5, 0.25, 0.25, 0.0)])
def test_all_orders_keep_every_slice_that_is_not_hit(prior):
    found = retention(full(Setting(slices=4, budget=24)), [0, 1, 3], prior=prior)
    assert found[:, 1:].sum(axis=1) == pytest.approx(full_budget_depth([0, 1, 3], prior or [0.25] * 4), abs=0.02)
