"""The trie of orders: every prefix once, children side by side."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.drawing.trie import heights, trie
from s3t.sequences import Setting, random_orders


@st.composite
def leaves(draw):
    slices = draw(st.integers(1, 6))
    budget = draw(st.integers(1, min(24, [1, 2, 6, 24, 120, 720][slices - 1])))
    return sorted(random_orders(Setting(slices=slices, budget=budget, seed=draw(st.integers(0, 9)))))


@given(leaves(), st.integers(0, 5))
def test_every_prefix_is_one_node_over_its_leaves(orders, chosen):
    nodes = trie(orders, orders[:chosen])
    prefixes = [node.prefix for node in nodes]
    assert len(set(prefixes)) == len(prefixes)
    assert set(prefixes) == {order[:depth] for order in orders for depth in range(1, len(order) + 1)}
    for node in nodes:
        depth = len(node.prefix)
        under = [number for number, order in enumerate(orders) if order[:depth] == node.prefix]
        assert under == list(range(node.low, node.high))
        assert node.chosen == any(number < chosen for number in under)


@given(leaves())
def test_a_node_is_in_the_middle_of_its_children(orders):
    nodes = trie(orders, ())
    rows = np.cumsum(np.arange(1.0, len(orders) + 1))
    places = heights(nodes, rows)
    for order, row in zip(orders, rows, strict=True):
        assert places[order] == row
    for prefix, place in places.items():
        inner = [value for other, value in places.items() if other[:-1] == prefix and other]
        if inner:
            assert place == pytest.approx((min(inner) + max(inner)) / 2)
