"""Measured costs of stages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.core import StageCosts

TIMES = st.lists(st.floats(1e-3, 1e6), max_size=5)


@given(st.integers(1, 6), st.data())
def test_a_measured_depth_costs_its_median_and_others_keep_their_proportions(slices, data):
    declared = StageCosts.declared(slices)
    seconds = {depth: data.draw(TIMES) for depth in range(1, slices + 1)}
    found = declared.measured(seconds)
    if not any(seconds.values()):
        assert found is None
        return
    for depth, times in seconds.items():
        if times:
            assert min(times) <= found.by_depth[depth - 1] <= max(times)
    others = [depth for depth, times in seconds.items() if not times]
    ratios = [found.by_depth[depth - 1] / declared.by_depth[depth - 1] for depth in others]
    assert ratios == pytest.approx([ratios[0]] * len(ratios)) if ratios else True


def test_depths_without_times_cost_what_the_measured_ones_suggest():
    declared = StageCosts.declared(3)
    assert declared.by_depth == (2, 8, 18)
    assert declared.measured({2: [4.0], 3: []}).by_depth == (1.0, 4.0, 9.0)
    assert declared.measured({1: [1.0, 5.0, 600.0]}).by_depth == (5.0, 20.0, 45.0)


def test_declared_costs_stay_as_they_are_when_times_are_measured():
    declared = StageCosts.declared(3)
    declared.measured({1: [100.0]})
    assert declared == StageCosts.declared(3)
